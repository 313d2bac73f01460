"""Step scores: splitting, clip, delta, aggregation, and the scorers that give them."""

import pytest

from mmrl.core.types import Prompt
from mmrl.rewards.steps import (
    FunctionScorer,
    StepReward,
    StepScorer,
    StepTransform,
    clip_steps,
    delta_steps,
    split_steps,
)
from mmrl.rollouts.text.scripted import scripted_episode


class Lengths(StepScorer):
    """The length of a step."""

    def __call__(self, episodes, steps):
        return [[float(len(step)) for step in own] for own in steps]


class Short(StepScorer):
    """A scorer that forgets the last step."""

    def __call__(self, episodes, steps):
        return [[1.0] * (len(own) - 1) for own in steps]


def share_of_digits(steps, answer, scale=1.0):
    return [scale * sum(c.isdigit() for c in step) / len(step) + 0 * answer for step in steps]


def episode(text: str):
    return scripted_episode(Prompt("numbers/train/0", answer=7), text)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a=1\nb=2", ["a=1\n", "b=2"]),
        ("a=1\n\nb=2\n", ["a=1\n\n", "b=2\n"]),
        ("\na", ["\n", "a"]),
        ("", [""]),
        ("a", ["a"]),
    ],
)
def test_steps_joined_are_the_text(text, steps):
    assert split_steps(text) == steps and "".join(steps) == text


def test_a_step_may_end_with_a_text_of_several_characters():
    assert split_steps("one. two. ", ". ") == ["one. ", "two. "]


def test_clip_and_delta_as_in_the_worked_example():
    scores = [0.9, 0.8, 0.3]
    assert clip_steps(scores, 0.7) == pytest.approx([0, 0, -0.4])
    assert delta_steps(scores) == pytest.approx([0.1, 0.5, 0.3])
    assert StepTransform(clip=0.7, delta=True)(scores) == pytest.approx([0, 0.4, -0.4])
    assert delta_steps(scores, keep_last=False) == pytest.approx([0.1, 0.5, 0])
    assert StepTransform()(scores) == scores and delta_steps([]) == []


def test_repeated_good_steps_earn_nothing_under_clip_and_no_more_than_one_under_delta():
    scores = [0.9] * 5
    assert sum(scores) == pytest.approx(4.5)
    assert sum(delta_steps(scores)) == pytest.approx(0.9)
    assert sum(clip_steps(scores, 0.7)) == 0


@pytest.mark.parametrize(("aggregation", "expected"), [("min", 2), ("sum", 6), ("mean", 3), ("last", 2)])
def test_the_score_step_reward_aggregates_the_steps(aggregation, expected):
    reward = StepReward({"step_reward": 0.5}, scorer=Lengths(), aggregation=aggregation)
    one = episode("abc\nde")
    one.scores = reward.scores([one])[0]
    assert one.scores == {"step_reward": expected} and reward([one]) == [0.5 * expected]


def test_a_function_takes_steps_and_columns_by_name():
    scorer = FunctionScorer(f"{__name__}:share_of_digits")
    assert scorer.score_steps([episode("12\nab")], [["12", "ab"]]) == [[1.0, 0.0]]


def test_a_missing_column_and_a_missing_score_are_named():
    def needs(steps, graph):
        return [0.0 for _ in steps]

    globals()["needs_graph"] = needs
    with pytest.raises(ValueError, match="parameter 'graph'"):
        FunctionScorer(f"{__name__}:needs_graph")([episode("a")], [["a"]])
    with pytest.raises(ValueError, match=r"Short gave \[1.0\] to the 2 steps of 'numbers/train/0'"):
        Short().score_steps([episode("a\nb")], [["a", "b"]])


def test_an_unknown_aggregation_and_an_empty_separator_are_refused():
    with pytest.raises(ValueError, match=r"reward\.aggregation must be one of"):
        StepReward({"step_reward": 1.0}, scorer=Lengths(), aggregation="product")
    with pytest.raises(ValueError, match=r"reward\.separator is empty"):
        StepReward({"step_reward": 1.0}, scorer=Lengths(), separator="")
