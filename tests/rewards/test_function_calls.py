import asyncio
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from mmrl.rewards.function_calls import Failure, FunctionCalls, bind_arguments, read_signature

ROW = {"level": 3, "prompt": "p", "messages": [], "completion": "four", "answer": 4, "images": [], "num_tokens": 2}
HERE = "tests.rewards.test_function_calls"


def one(completion, answer, level=0, nope=7):
    return 1


def every(completions, level, answer, nope=7):
    return [1.0] * len(completions)


def keywords(completion, **columns):
    return sorted(columns)


def keywords_of_all(prompts, **columns):
    return columns


def positional(completion, /):
    return 0


def both(completion, completions):
    return 0


RUNNING: list[int] = []
"""Calls of `slow` that have begun and not ended."""
AT_ONCE: list[int] = []
"""How many there were at the beginning of each."""


async def slow(completion):
    RUNNING.append(1)
    AT_ONCE.append(len(RUNNING))
    await asyncio.sleep(0.3)
    RUNNING.pop()
    return len(completion)


async def fail(completions):
    raise ValueError("no server")


def returns(completion):
    return completion


def returns_all(completions):
    return completions[0]


def exits(completion):
    raise SystemExit(4)


def call(function, *calls):
    calls = calls or (({"completion": "four"}, 1),)
    return FunctionCalls([f"{HERE}:{function.__name__}"])(0, calls)


def bind(function, rows=(ROW,)):
    return bind_arguments(read_signature(function, f"x.py:{function.__name__}"), rows)


def test_arguments_are_given_by_name():
    assert bind(one) == {"completion": "four", "answer": 4, "level": 3}
    assert bind(keywords) == ROW
    assert bind_arguments(read_signature(lambda: 0, "x.py:f"), [ROW]) == {}


def test_a_plural_parameter_makes_every_argument_a_list():
    rows = [ROW, {**ROW, "completion": "five", "answer": 5}]
    assert bind(every, rows) == {"completions": ["four", "five"], "level": [3, 3], "answer": [4, 5]}
    given = bind(keywords_of_all, rows)
    assert given["prompts"] == ["p", "p"] and given["answers"] == [4, 5] and given["level"] == [3, 3]


def test_a_parameter_that_is_no_column_is_named():
    with pytest.raises(KeyError, match="level"):
        bind(every, [{"completion": "x", "answer": 1}])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (positional, "'completion' by position only"),
        (both, "takes `completion`, which is one"),
        (max, "max has no signature; wrap it in a function of your own"),
        (len, "len takes 'obj' by position only"),
    ],
)
def test_parameters_that_cannot_be_given_are_refused(function, message):
    with pytest.raises(ValueError, match=message):
        bind(function)


@pytest.mark.parametrize("value", [True, 2, 0.5, np.float32(0.5), torch.tensor(0.5), np.int64(2), Decimal("0.5"),
                                   Fraction(1, 2)], ids=repr)  # fmt: skip
def test_numbers_of_every_kind_are_scores(value):
    assert call(returns, ({"completion": value}, 1)) == [[{"returns": float(value)}]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "returned None, which is not a finite number"),
        ("1.0", r"returned '1.0' \(str\), which"),
        (math.nan, "returned nan, which"),
        (-math.inf, "returned -inf"),
        (10**400, "not a finite number"),
        ([1.0], r"returned \[1.0\] \(list\)"),
        (1j, "returned 1j"),
        (np.zeros(1), "not a finite number"),
        ({}, "an empty dict"),
        ({"a": math.nan}, "returned nan as 'a'"),
        ({1: 1.0}, "the key 1"),
        ({"a/b": 1.0}, "text without /"),
    ],
    ids=repr,
)
def test_what_is_no_number_is_a_failure(value, message):
    (failure,) = call(returns, ({"completion": value}, 1))
    assert isinstance(failure, Failure) and failure.position is None
    with pytest.raises(ValueError, match=message):
        raise ValueError(failure.reason)


@pytest.mark.parametrize(
    "value",
    [[1, 2], (1.0, 2.0), np.array([1, 2]), torch.tensor([1.0, 2.0]), [{"a": 1}, {"a": 2}], {"a": np.array([1, 2])}],
    ids=repr,
)
def test_a_batch_returns_a_number_or_named_numbers_for_each(value):
    name = "a" if "a" in repr(value)[:6] and "array" not in repr(value)[:6] else "returns_all"
    assert call(returns_all, ({"completions": [value]}, 2)) == [[{name: 1.0}, {name: 2.0}]]


@pytest.mark.parametrize(
    ("value", "message", "position"),
    [
        ([1.0], "returned a list of 1 values for 2 completions", None),
        ({"a": [1.0, 2.0, 3.0]}, "a list 'a' of 3 values for 2 completions", None),
        (1.0, "returned 1.0; a function of `completions` returns a list of one number for each", None),
        (None, "returned None", None),
        ([1.0, math.nan], "returned nan", 1),
        ([{"a": 1.0}, {"a": "x"}], "returned 'x' .str. as 'a'", 1),
    ],
    ids=repr,
)
def test_a_batch_of_another_length_or_kind_is_a_failure(value, message, position):
    (failure,) = call(returns_all, ({"completions": [value]}, 2))
    assert failure.position == position
    with pytest.raises(ValueError, match=message):
        raise ValueError(failure.reason)


def test_an_exception_is_a_failure_with_its_line():
    (failure,) = call(exits)
    assert failure.reason == "raised SystemExit: 4 (test_function_calls.py, line 67: raise SystemExit(4))"


def test_coroutines_run_at_the_same_time_inside_a_running_loop_too():
    async def notebook():
        return call(slow, *(({"completion": "x" * n}, 1) for n in range(20)))

    AT_ONCE.clear()
    assert asyncio.run(notebook()) == [[{"slow": float(n)}] for n in range(20)]
    assert max(AT_ONCE) == 20
    (failure,) = call(fail, ({"completions": ["x"]}, 1))
    assert failure.reason.startswith("raised ValueError: no server (test_function_calls.py, line ")
