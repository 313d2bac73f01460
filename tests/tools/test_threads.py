"""Calls in threads: results, exceptions as results, and timeouts."""

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
    executor, started = ThreadExecutor("counter", threads=2), time.monotonic()
    pending = [executor.start("a", lambda: time.sleep(0.15) or 1, 0.25) for _ in range(4)]
    executor.wait(pending)
    assert [executor.finish(call) for call in pending] == [1] * 4
    assert 0.25 < time.monotonic() - started < 0.55


def test_calls_past_their_timeout_stop_the_run_in_the_end():
    executor = ThreadExecutor("counter", max_timeouts=1)
    first, second = (executor.start("slow", lambda: time.sleep(30), 0.05) for _ in range(2))
    executor.wait([first, second])
    assert isinstance(executor.finish(first), TimeoutError)
    with pytest.raises(RuntimeError, match=r"counter 'slow' has 2 calls past their timeout.*fix the counter"):
        executor.finish(second)
