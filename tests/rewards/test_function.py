import math

import pytest
import torch

from mmrl.rewards.function import FunctionReward
from mmrl.types import Completion, Episode, Prompt, Turn


def episode(output: str, answer: object) -> Episode:
    nothing = torch.zeros(0)
    return Episode(
        Prompt("mine/train/7", answer=answer), 0, 0, [Turn(Completion({}, nothing, nothing, nothing, output))]
    )


def length_error(completion: str, answer: int) -> float:
    return -abs(len(completion) - answer)


def test_the_function_is_given_the_completion_and_the_answer():
    group = [episode("four", 4), episode("x", 4)]
    assert FunctionReward(length_error)(group) == [0.0, -3.0]
    assert FunctionReward("tests.rewards.test_function.length_error")(group) == [0.0, -3.0]


def test_an_exception_names_the_function_and_is_no_reward():
    def divide(completion, answer):
        return 1 / (len(completion) - answer)

    with pytest.raises(
        RuntimeError, match=r"'.*divide' raised ZeroDivisionError: .* 'four' and the answer 4 of 'mine/train/7'"
    ):
        FunctionReward(divide)([episode("four", 4)])


@pytest.mark.parametrize("value", [None, "right", math.nan, math.inf, [1, 2]], ids=repr)
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="must return a finite number"):
        FunctionReward(lambda completion, answer: value)([episode("x", 1)])


@pytest.mark.parametrize("value", [True, 2, torch.tensor(0.5)], ids=repr)
def test_numbers_of_every_kind_are_rewards(value):
    assert FunctionReward(lambda completion, answer: value)([episode("x", 1)]) == [float(value)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nope.reward", "No module named 'nope'; put its folder"),
        ("math.nope", "no attribute"),
        ("math.pi", "must be the import path"),
    ],
)
def test_a_path_without_a_function_is_refused(path, message):
    with pytest.raises(ValueError, match=message):
        FunctionReward(path)
