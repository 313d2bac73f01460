"""Calls in threads: results, exceptions as results, and timeouts."""

import threading
import time

import pytest

from mmrl.tools.threads import ThreadExecutor


def test_an_exception_is_the_result_of_its_call():
    executor = ThreadExecutor("counter")
    pending = [executor.start("a", function, 5.0) for function in (lambda: 7, lambda: 1 / 0, lambda: exit(3))]
    executor.wait(pending)
    seven, zero, left = map(executor.finish, pending)
    assert seven == 7 and isinstance(zero, ZeroDivisionError) and isinstance(left, SystemExit)


def test_calls_run_at_the_same_time_and_the_time_of_waiting_for_a_thread_does_not_count():
    executor, together = ThreadExecutor("counter", threads=2), threading.Barrier(2)

    def call():
        together.wait(60)  # for the call that runs at the same time
        time.sleep(1.2)
        return 1

    pending = [executor.start("a", call, 2.0) for _ in range(4)]
    executor.wait(pending)
    assert [executor.finish(each) for each in pending] == [1] * 4  # the last two began after 1.2 s


def test_calls_past_their_timeout_stop_the_run_in_the_end():
    executor = ThreadExecutor("counter", max_timeouts=1)
    first, second = (executor.start("slow", lambda: time.sleep(30), 0.05) for _ in range(2))
    executor.wait([first, second])
    assert isinstance(executor.finish(first), TimeoutError)
    with pytest.raises(RuntimeError, match=r"counter 'slow' has 2 calls past their timeout.*fix the counter"):
        executor.finish(second)


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_jumps_changes_no_limit(jump, monkeypatch):
    executor, clock, never = ThreadExecutor("counter"), time.time, threading.Event()
    quick = executor.start("a", lambda: time.sleep(0.2) or 7, 5.0)
    hanging = executor.start("a", never.wait, 0.5)
    began = time.monotonic()
    monkeypatch.setattr(time, "time", lambda: clock() + jump)
    executor.wait([quick, hanging])
    assert 0.4 < time.monotonic() - began < 5
    assert executor.finish(quick) == 7 and isinstance(executor.finish(hanging), TimeoutError)
    never.set()
