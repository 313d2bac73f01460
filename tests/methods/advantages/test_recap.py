"""Weights of objectives from their histories, by hand, and the reward that they make."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Prompt, Sampling
from mmrl.methods.advantages.recap import WeightedObjectives, objective_weights
from mmrl.ops.advantage import group_advantage
from mmrl.rollouts.text.scripted import scripted_episode

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
HISTORIES = [[0.5, 0.5, 0.25, 0.25], [0.5, 0.5, 0.5, 0.5], [0.2, 0.4, 0.1, 0.5]]


def test_by_hand():
    # c = .25 / .5 = .5, .5 / .5 = 1, .3 / .3 = 1; i = 0, 0, .2 / .6 = 1 / 3
    # (c + i) / 2 / 5 = .05, .1, .133333: exp 1.051271, 1.105171, 1.142631, each times 3 / 3.299073
    out = objective_weights(HISTORIES, 2)
    assert out == pytest.approx([0.955970, 1.004983, 1.039047], abs=1e-6) and sum(out) == pytest.approx(3)
    # without the factor 1/2, as the temperature 2.5 has it: exp(.1), exp(.2), exp(.266667), times 3 / 3.632178
    out = objective_weights(HISTORIES, 2, temperature=2.5)
    assert out == pytest.approx([0.912816, 1.008818, 1.078365], abs=1e-6)
    assert objective_weights([[0.3] * 4] * 3, 2) == pytest.approx([1, 1, 1])
    assert objective_weights([[0.9, 0.1, 0.5]] * 2, 2) == [1, 1]  # not yet two windows
    assert objective_weights([[9.0, *history] for history in HISTORIES], 2) == objective_weights(HISTORIES, 2)


def test_epsilon_by_hand():
    # means .4 after .5 and .5 after 1, std .2 and 0: s = (.4 / 1 + .2 / 1.4) / 2 = .271429 and .5 / 1.5 / 2 = .166667
    out = objective_weights([[0.5, 0.5, 0.2, 0.6], [1.0, 1.0, 0.5, 0.5]], 2, temperature=1.0, epsilon=0.5)
    assert out == pytest.approx([1.052333, 0.947667], abs=1e-5)
    assert objective_weights([[0.0, 0.5], [0.5, 0.5]], 1) == [2.0, 0.0]  # e^(.5e8 / 2 / 5) would overflow
    assert objective_weights([[0.9, 0.1], [0.5]], 1) == [1, 1]  # one history is too short


def episodes(exact, form):
    out = [scripted_episode(Prompt("toy/train/0"), "") for _ in exact]
    for episode, a, b in zip(out, exact, form):
        episode.scores = {"exact": a, "format": b}
    return out


def test_rewards_are_weighted_advantages():
    part = WeightedObjectives(window=1, epsilon=1e-8)
    part(episodes([0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]), CTX)
    # the means go from .25 to .75 and stay at .5: losses .75 to .25 and .5, so c = 1 / 3 and 1, i = 0
    exact, form = [1.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]
    out = torch.tensor([episode.reward for episode in part(episodes(exact, form), CTX)])
    weights = objective_weights([[0.75, 0.25], [0.5, 0.5]], 1)
    odds = torch.tensor([1 / 30, 1 / 10]).exp()
    assert_close(torch.tensor(weights), 2 * odds / odds.sum())
    group = torch.zeros(4, dtype=torch.long)
    each = [group_advantage(torch.tensor(score), group) for score in (exact, form)]
    assert_close(out, (weights[0] * each[0] + weights[1] * each[1]) / 2)


def test_the_histories_are_saved_and_scores_are_checked():
    part, again = WeightedObjectives(window=1), WeightedObjectives(window=1)
    for _ in range(3):
        part(episodes([0.0, 1.0], [0.0, 0.0]), CTX)
    assert part.state_dict() == {"exact": [0.5, 0.5], "format": [1.0, 1.0]}
    again.load_state_dict(part.state_dict())
    more = episodes([1.0, 0.0], [1.0, 0.0])
    assert [e.reward for e in again(more, CTX)] == [e.reward for e in part(more, CTX)]
    assert WeightedObjectives()([], CTX) == []
    with pytest.raises(ValueError, match=r"'exact' is from 0.0 to 2.0"):
        part(episodes([0.0, 2.0], [0.0, 0.0]), CTX)
    for wrong in ({"window": 0}, {"score_names": []}, {"instability_weight": 2.0}):
        with pytest.raises(ValueError, match="weighted_objectives"):
            WeightedObjectives(**wrong)
