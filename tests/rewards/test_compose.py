"""One number out of named scores."""

import pytest
import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.rewards.compose import Composition, Gate, Interaction, OverlongPenalty, WeightedSum


def episode(**scores):
    return Episode(Prompt("toy/train/0"), group=0, sample_index=0, scores=scores)


def test_weighted_sum():
    group = [episode(exact=1.0, format=1.0), episode(exact=0.0, format=1.0, unused=5.0)]
    assert WeightedSum({"exact": 1.0, "format": 0.25})(group) == [1.25, 0.25]


def test_no_weights_leave_the_reward_to_the_environment():
    assert WeightedSum({})([episode(success=1.0)]) == [0.0]


def test_refusals():
    with pytest.raises(KeyError, match=r"'exat'.*'toy/train/0'.*'exact', 'format'"):
        WeightedSum({"exat": 1.0})([episode(exact=1.0, format=1.0)])
    with pytest.raises(ValueError, match=r"'exact'.* is nan"):
        WeightedSum({"exact": 1.0})([episode(exact=float("nan"))])


def of_length(length, exact):
    completion = Completion({}, torch.zeros(length), torch.zeros(length), torch.ones(length).bool(), "")
    return Episode(Prompt("toy/train/0"), 0, 0, [Turn(completion)], scores={"exact": exact})


def test_the_penalty_falls_through_the_buffer():
    # max_tokens 10, buffer 4: 0 up to 6, (6 - 7) / 4 at 7, -1 at 10
    reward = OverlongPenalty({"exact": 2.0}, max_tokens=10, buffer_fraction=0.4)
    group = [of_length(length, exact) for length, exact in ((6, 1.0), (7, 1.0), (10, 0.0))]
    for one, further in zip(group, reward.scores(group)):
        one.scores.update(further)
    assert reward(group) == pytest.approx([2.0, 1.75, -1.0])


def test_refusal_of_a_buffer():
    with pytest.raises(ValueError, match="buffer_fraction"):
        OverlongPenalty({}, buffer_fraction=0.0)


def compose(scores, **arguments):
    return Composition(**arguments)([episode(**scores)])[0]


def test_a_score_counts_only_while_its_gate_is_open():
    gated = {"weights": {"exact": 1.0, "format": 0.1}, "gates": {"exact": Gate("format")}}
    assert compose({"exact": 1.0, "format": 1.0}, **gated) == 1.1
    assert compose({"exact": 1.0, "format": 0.0}, **gated) == 0.0
    gated["gates"] = {"exact": Gate("iou", at_least=0.5)}
    assert compose({"exact": 1.0, "format": 1.0, "iou": 0.5}, **gated) == 1.1
    assert compose({"exact": 1.0, "format": 1.0, "iou": 0.49}, **gated) == 0.1


def test_saturation_mean_and_veto():
    # knee 0.8, slope 0.25: 1 -> 0.85, 0.5 -> 0.5, 0.9 -> 0.825; (2 * 0.85 + 0.5 + 0.825) / 4 = 0.75625
    rubric = {"weights": {"a": 2.0, "b": 1.0, "c": 1.0}, "vetoes": {"a": 0.0}, "mean": True, "knee": 0.8, "slope": 0.25}
    assert compose({"a": 1.0, "b": 0.5, "c": 0.9}, **rubric) == pytest.approx(0.75625, abs=1e-12)
    assert compose({"a": 0.0, "b": 1.0, "c": 1.0}, **rubric) == 0.0
    assert compose({"a": 0.5, "b": 0.5, "c": 0.5}, **rubric) == 0.5
    assert compose({"a": 0.0, "b": 1.0, "c": 1.0}, **rubric, veto_reward=-1.0) == -1.0


def test_interactions_and_shaping_by_hand():
    # .5 + .8 + 2 * .5 * .8 = 2.1, of the weights 1 + 1 + 2
    both = {"weights": {"a": 1.0, "b": 1.0}, "interactions": {"ab": Interaction("a", "b", 2.0)}}
    assert compose({"a": 0.5, "b": 0.8}, **both) == pytest.approx(2.1)
    assert compose({"a": 0.5, "b": 0.8}, **both, mean=True) == pytest.approx(0.525)
    # the saturated score .8 + .25 * .2 = .85 is what interacts
    assert compose({"a": 1.0, "b": 1.0}, **both, knee=0.8) == pytest.approx(0.85 + 0.85 + 2 * 0.85**2)
    assert compose({"a": 0.5}, weights={"a": 1.0}, power=2.0) == 0.25
    assert compose({"a": 0.5}, weights={"a": -1.0}, power=2.0) == -0.25


def test_scores_and_the_result_are_clamped():
    # base 1 - 1000 / 100 = -9 for a right answer of 400 characters, held at -0.5
    clamped = {"weights": {"exact": 1.0, "thought": 1.0}, "clamps": {"thought": [-1.5, 0.0]}}
    assert compose({"exact": 1.0, "thought": -10.0}, **clamped) == -0.5
    assert compose({"exact": 1.0, "thought": 3.0}, **clamped) == 1.0
    assert compose({"exact": 1.0, "thought": 0.0}, weights={"exact": 5.0}, bounds=[0.0, 2.0]) == 2.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gates": {"iou": Gate("format")}}, r"gates names \['iou'\], which have no weight"),
        ({"clamps": {"iou": [0, 1]}}, r"clamps names \['iou'\]"),
        ({"clamps": {"exact": [1, 0]}}, r"bounds of 'exact' must be \[lower, upper\]"),
        ({"bounds": [0, 1, 2]}, "bounds of 'bounds'"),
        ({"slope": 2.0}, "slope must be in"),
        ({"power": 0.0}, "power"),
        ({"interactions": {"x": Interaction("exact", "iou", 1.0)}}, r"interactions.x names \['iou'\], which have no"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Composition({"exact": 1.0}, **arguments)


def test_a_mean_needs_a_positive_sum_of_weights():
    with pytest.raises(ValueError, match="positive sum"):
        Composition({"exact": 1.0, "length": -1.0}, mean=True)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [({"vetoes": {"safe": 0.0}}, "vetoes"), ({"gates": {"exact": Gate("safe")}}, "gates")],
)
def test_a_missing_score_is_refused_in_the_name_of_the_option(arguments, option):
    with pytest.raises(KeyError, match=rf"data.reward.{option} names 'safe'.*'toy/train/0'.*'exact'"):
        compose({"exact": 1.0}, weights={"exact": 1.0}, **arguments)
