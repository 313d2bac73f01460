"""TimeLens: probabilities by hand, which clips are drawn, recall at thresholds, and its recipe."""

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.vision.timelens import DifficultySampler, RecallAtIoU, difficulty_weights
from mmrl.rewards.compose import WeightedSum
from tasks.clips import Clips
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import Kinds, at
from tests.methods.problems.test_mopps import shown

LAWS = [lambda: DifficultySampler(2, 4)]
SCORES = np.array([0, 0, 0.02, 0.3, 0.3, 0.7])
CTX = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4)


def test_probabilities_by_hand():
    """exp(-((x - .05) / .2)^2 / 2) is .969233, .969233, .988813, .457833, .457833, .005086; 3, 2 and 1 share a bin."""
    alone = [0.251878, 0.251878, 0.256966, 0.118979, 0.118979, 0.001322]
    assert difficulty_weights(SCORES, bins=1) == pytest.approx(alone, abs=1e-6)
    assert difficulty_weights(SCORES) == pytest.approx(
        [0.224566, 0.224566, 0.229102, 0.159116, 0.159116, 0.003535], abs=1e-6
    )
    assert difficulty_weights(SCORES, std=1000, bins=1) == pytest.approx([1 / 6] * 6)  # the experiment's baseline
    # 0 and 1 are in the first and last bin, a bound between two bins in the upper one: 2 clips in [.5, .75), 1 above
    bound = difficulty_weights(np.array([0.5, 0.74, 1.0]), std=1000, bins=4)
    assert bound == pytest.approx([0.25, 0.25, 0.5], abs=1e-5)


def measured(**options):
    """A sampler that measured 16 clips: those of the second half have an IoU of 1."""
    curriculum = DifficultySampler(2, **{"size": 4, **options})
    for iteration in range(2):
        indices = curriculum.select(8, at(iteration, Kinds(16)))
        curriculum.observe([shown(index, [float(index >= 8)] * 2) for index in indices])
    return curriculum


def test_hard_clips_are_drawn_once_and_repeated():
    curriculum = measured(size=8)
    first = curriculum.select(8, at(2, Kinds(16)))
    assert sorted(first) == list(range(8))  # exp(-.5 (.95 / .2)^2) is 1.3e-5 of a hard one's
    curriculum.observe([shown(index, [1.0]) for index in first])  # the scores stay those of the start
    assert curriculum.select(10, at(3, Kinds(16))) == [*first, *first[:2]]
    alike = measured(size=8, std=1000).select(8, at(2, Kinds(16)))
    assert len(set(alike)) == 8 and 0 < sum(index >= 8 for index in alike) < 8


def test_a_resumed_run_has_the_same_clips():
    curriculum = measured()
    again = DifficultySampler(2, 4)
    again.load_state_dict(curriculum.state_dict())
    assert again.select(3, at(2, Kinds(16))) == curriculum.select(3, at(2, Kinds(16)))
    third = DifficultySampler(2, 4)
    third.load_state_dict(curriculum.state_dict())
    assert third.select(3, at(3, Kinds(16))) == curriculum.select(3, at(3, Kinds(16)))


def test_more_clips_than_were_measured_are_refused():
    with pytest.raises(ValueError, match=r"curriculum\.size is 17, but 16 problems were measured"):
        measured(size=17).select(4, at(2, Kinds(16)))
    for wrong in ({"measure_iterations": 0}, {"size": 0}, {"std": 0}, {"bins": 0}):
        with pytest.raises(ValueError, match=f"curriculum.{next(iter(wrong))}"):
            DifficultySampler(**{"measure_iterations": 1, "size": 1, **wrong})


def test_recall_counts_an_overlap_at_the_threshold():
    overlaps = [0.3, 0.5, 0.69, 1.0, 0.0]
    episodes = [Episode(Prompt("p"), 0, i, scores={"iou": overlap}) for i, overlap in enumerate(overlaps)]
    broken = Episode(Prompt("p"), 0, 9, scores={})
    broken.ended = "error"
    assert RecallAtIoU()([*episodes, broken]) == pytest.approx(
        {"recall@0.3": 0.8, "recall@0.5": 0.6, "recall@0.7": 0.2, "mean_iou": 0.498, "errors": 1}
    )
    with pytest.raises(ValueError, match="thresholds"):
        RecallAtIoU((0.0,))


def test_the_recipe_pays_the_overlap_alone():
    """IoU 4/7 of (10, 20) and (12, 24), 0, 1 and 1/3: less their mean, 10/21, and nothing divides by it."""
    config = compose_words(("recipe=timelens",))
    data = config.data
    episodes = [
        Episode(Prompt("p"), 0, i, scores={"iou": overlap, "exact": float(overlap == 1), "format": 1.0})
        for i, overlap in enumerate((4 / 7, 0, 1, 1 / 3))
    ]
    weights = {name: weight for name, weight in data.reward.weights.items() if weight is not None}
    earned = WeightedSum(weights)(episodes)
    assert earned == pytest.approx([4 / 7, 0, 1, 1 / 3])
    batch = Batch(
        action_mask=torch.ones(4, 1).bool(),
        episode_reward=torch.tensor(earned),
        group=torch.zeros(4).long(),
        episode=torch.arange(4),
    )
    out = instantiate(data.annotators.group_advantage)(batch, CTX)["advantages"][:, 0]
    assert_close(out, torch.tensor([2 / 21, -10 / 21, 11 / 21, -1 / 7]))
    assert data.transforms.measuring.iterations == data.curriculum.measure_iterations < data.max_empty_iterations
    assert data.num_prompts * data.curriculum.measure_iterations >= data.curriculum.size
    assert config.model.policy.freeze_vision and Clips().time
