"""Further episodes of hard problems."""

from collections import Counter

import pytest
import torch

from mmrl.core.types import Collector, Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.problems.dars import AdaptiveSampling, extra_samples
from tests.tiny_recipes import fit


@pytest.mark.parametrize(
    ("right", "scaled", "expected"),
    [
        (0.0, False, (24, 24)),
        (0.125, False, (11, 24)),
        (0.25, False, (3, 8)),
        (0.375, False, (1, 3)),
        (0.5, False, (0, 0)),
        (1.0, False, (0, 0)),
        (0.125, True, (5, 14)),
        (0.25, True, (2, 6)),
    ],
)
def test_hand_computed(right, scaled, expected):
    # e.g. a = 1/8: S = 2 * 7/64 = .21875, equal (4 - 1.75) / S = 10.3 -> 11; hardness (7 - 1.75) / S = 24
    assert tuple(extra_samples(right, 8, 32, rule, scaled) for rule in ("equal", "hardness")) == expected


def test_the_largest_group_bounds_it():
    assert extra_samples(0.0, 8, 64, "hardness") == 56 and extra_samples(0.0, 8, 8, "hardness") == 0


def episode(slot, sample_index, reward):
    done = Completion({}, torch.zeros(1), torch.zeros(1), torch.ones(1).bool(), "x")
    return Episode(Prompt(f"t/train/{slot}"), slot, sample_index, [Turn(done)], {"exact": reward}, reward)


def test_groups_are_joined_and_failures_stay_out():
    asked = {}

    class Supply(Collector):
        def collect_samples(self, indices):
            asked.update(indices)
            more = [episode(slot, number, 1.0) for slot, wanted in indices.items() for number in wanted]
            more[0].ended = "error"
            return more

    episodes = [episode(slot, i, float(i < right)) for slot, right in ((0, 8), (5, 2)) for i in range(8)]
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=8, collector=Supply())
    out = AdaptiveSampling(rule="hardness")(episodes, ctx)
    assert asked == {5: range(8, 16)}
    assert [(e.group, e.sample_index) for e in out] == [(0, i) for i in range(8)] + [(5, i) for i in range(8)] + [
        (5, i) for i in range(9, 16)
    ]
    with pytest.raises(RuntimeError, match="only the training loop samples further episodes"):
        AdaptiveSampling()(episodes, Context(None, None, None, Sampling(), seed=0, iteration=0))


def test_in_a_run_groups_have_several_sizes(tmp_path):
    """Random answers hold a digit less than half of the time: their prompts are asked again, with other draws."""
    target = "mmrl.methods.problems.dars.AdaptiveSampling"
    part = f"{{adaptive_sampling: {{_target_: {target}, max_group_size: 7, score_name: exact}}}}"
    left = fit(tmp_path, f"data.transforms={part}", "trainer.max_epochs=1")
    assert left["metrics"][-1]["rollout/episodes_collected"] > 6 * 4
    sizes = Counter(group for minibatch in left["minibatches"] for group, _ in minibatch)
    assert len(set(sizes.values())) > 1 and min(sizes.values()) == 4 and max(sizes.values()) <= 7
    answers = Counter(row for minibatch in left["minibatches"] for row in minibatch)
    assert max(answers.values()) == 1
