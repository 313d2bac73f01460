"""Limits of calls on answers: processor time, memory, deaths, and one time limit inside another."""

import os
import signal

import pytest

from mmrl.rewards.limits import LimitPassed, limit_cpu, run_limited
from mmrl.rewards.worker import CallRaised
from tests.rewards.test_worker import spin
from tests.times import fits


def add(a: int, b: int) -> int:
    return a + b


def end_by(number: int) -> None:
    os.kill(os.getpid(), number)


def fill() -> int:
    return len(bytearray(2**40))


def spin_inside(inner: float, outside: bool) -> int:
    """Hold the interpreter inside or after an inner limit."""
    with limit_cpu(inner):
        if not outside:
            spin()
    return spin()


def test_a_call_has_its_result_and_its_errors():
    assert run_limited(1.0, add, 1, b=2) == 3
    with pytest.raises(CallRaised, match="TypeError"):
        run_limited(1.0, add, 1, "2")


@pytest.mark.parametrize(("inner", "outside"), [(0.2, False), (500.0, True)])
def test_a_call_ends_at_its_limit_inside_of_one_operation(inner, outside):
    def overrun() -> None:
        with pytest.raises(LimitPassed, match="timed_out: a call used more than its limit") as error:
            run_limited(0.2 if outside else 500.0, spin_inside, inner, outside)
        assert error.value.outcome == "timed_out"

    assert fits(overrun, 1)  # of this process; the worker's is limited
    assert run_limited(1.0, add, 1, 2) == 3


@pytest.mark.parametrize(
    ("function", "args", "outcome"), [(fill, (), "out_of_memory"), (end_by, (signal.SIGSEGV,), "died")]
)
def test_memory_and_deaths_have_their_names(function, args, outcome):
    with pytest.raises(LimitPassed, match=outcome) as error:
        run_limited(5.0, function, *args)
    assert error.value.outcome == outcome


def test_nothing_is_limited_outside_of_a_worker():
    with limit_cpu(1e-6):
        assert sum(range(10**5)) > 0
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
