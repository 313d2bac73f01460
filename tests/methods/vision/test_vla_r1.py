"""VLA-R1: the reward of boxes and paths by hand, and the mixture of its recipe."""

from collections import Counter

import pytest
from hydra.utils import instantiate

from mmrl.core.types import Episode, Prompt
from mmrl.methods.vision.vla_r1 import geometry
from mmrl.rewards.boxes import giou
from mmrl.rewards.compose import WeightedSum
from tasks.scenes.frechet import frechet_score
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import at
from tests.tasks.replies import reply


@pytest.fixture(scope="module")
def data():
    return compose_words(("recipe=vla_r1",)).data


def pay(data, **scores) -> float:
    weights = {name: weight for name, weight in data.reward.weights.items() if weight is not None}
    parts = {name: scores[name] for name in ("giou", "frechet") if name in scores}
    episode = Episode(Prompt("p"), 0, 0, scores={**scores, "geometry": geometry(**parts)})
    return WeightedSum(weights)([episode])[0]


def test_rewards_by_hand(data):
    """Boxes of .4 x .4, shifted by .1: IoU = GIoU = .12 / .2, so .8; in two corners: GIoU 0 - (.64 - .08) / .64."""
    near = (giou((0.3, 0.3, 0.7, 0.7), (0.4, 0.3, 0.8, 0.7)) + 1) / 2
    apart = (giou((0.1, 0.1, 0.3, 0.3), (0.7, 0.7, 0.9, 0.9)) + 1) / 2
    assert (near, apart) == (pytest.approx(0.8), pytest.approx(0.0625))
    assert pay(data, giou=near, format=1.0) == pytest.approx(0.82)
    assert pay(data, giou=apart, format=1.0) == pytest.approx(0.15625)
    line = [(0.1, 0.5), (0.5, 0.5), (0.9, 0.5)]
    assert pay(data, frechet=frechet_score(line, line[::-1]), format=1.0) == pytest.approx(0.412784, abs=1e-6)
    assert pay(data, frechet=0.0, format=0.0) == 0


def test_a_task_with_both_scores_or_none_is_refused():
    for scores in ({}, {"giou": 1.0, "frechet": 1.0}):
        with pytest.raises(ValueError, match="geometry needs one of the scores"):
            geometry(**scores)


def test_half_of_an_iteration_are_paths_and_both_are_scored(data):
    task = instantiate(data.task, _convert_="all")
    curriculum = instantiate(data.curriculum)
    small = type(task)(task.parts, counts={"box": 16, "path": 16})
    indices = curriculum.select(8, at(0, small))
    assert Counter(small[index].info["task"] for index in indices) == {"box": 4, "path": 4}
    built = instantiate(data.reward, weights=None)
    built.weights = {name: w for name, w in data.reward.weights.items() if w is not None}
    built.check_task(small)
    for index in indices:
        prompt = small[index]
        episode = reply(prompt, small.demonstrate(index))
        episode.scores = small.score(episode)
        episode.scores |= built.scores([episode])[0]
        assert built([episode]) == [1.0]
