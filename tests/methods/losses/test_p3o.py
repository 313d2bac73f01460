"""Pairwise policy gradient by hand; constants added to the rewards of a prompt change nothing."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, PolicyOutput, Prompt
from mmrl.methods.losses.p3o import PairwiseSurrogate, PromptOffset
from tests.laws.example import Example

LAWS = [Example(PairwiseSurrogate(0.2, clipping)) for clipping in ("separate", "joint")]


def loss(log_ratio, reward, clipping, clip=0.2):
    rows = len(reward)
    batch = Batch(
        action_mask=torch.ones(rows, 1).bool(),
        group=torch.zeros(rows, dtype=torch.long),
        episode_reward=torch.as_tensor(reward),
        behavior_logprobs=torch.full((rows, 1), -10.0),
    )
    logprobs = torch.as_tensor(log_ratio)[:, None] - 10.0
    return PairwiseSurrogate(clip, clipping)(PolicyOutput(logprobs, logprobs.detach()), batch)


def test_by_hand():
    """log pi - log pi_old = .3 and -.1: q = 1.349859, .904837; rewards 1.95 and 1.05, D = .9.

    Separate: -.9 min(q_1, 1.2) = -1.08 and .9 max(q_2, .8) = .814354, whose mean is -.132823.
    Joint: q_1 / q_2 = e^.4, -.9 * 1.2 / 2 = -.54; from the other side .9 max(e^-.4, .8) / 2 = .36.
    """
    for level in (0.0, 5.0, -1000.0):
        reward = torch.tensor([1.95, 1.05], dtype=torch.float64) + level
        ratio = torch.tensor([0.3, -0.1], dtype=torch.float64)
        separate = loss(ratio, reward, "separate")
        assert_close(separate, torch.tensor([-1.08, 0.814354]).double(), atol=1e-6, rtol=0)
        assert_close(separate.mean(), torch.tensor(-0.132823).double(), atol=1e-6, rtol=0)
        assert_close(loss(ratio, reward, "joint"), torch.tensor([-0.54, 0.36]).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("clipping", ["separate", "joint"])
def test_the_coefficient_of_a_pair_is_half_the_difference(clipping):
    """d mean loss / d log pi_1 = -(r_1 - r_2) / 2: rewards (3, 1) and (103, 101) give 1, (2, 2) gives 0."""
    for reward, coefficient in (([3.0, 1.0], 1.0), ([103.0, 101.0], 1.0), ([2.0, 2.0], 0.0)):
        ratio = torch.zeros(2, requires_grad=True)
        loss(ratio, reward, clipping).mean().backward()
        assert_close(ratio.grad, torch.tensor([-coefficient, coefficient]))


@pytest.mark.parametrize("clipping", ["separate", "joint"])
def test_on_fresh_samples_it_is_rloo(clipping):
    reward, ratio = torch.tensor([1.0, 0.0, 0.5, 2.0]), torch.zeros(4, requires_grad=True)
    loss(ratio, reward, clipping).mean().backward()
    assert_close(ratio.grad, -(reward - (reward.sum() - reward) / 3) / 4)


def test_beyond_the_clip_range_a_pair_has_no_gradient():
    for clipping, ratio in (("separate", [0.3, -0.3]), ("joint", [0.15, -0.15])):
        ratio = torch.tensor(ratio, requires_grad=True)
        loss(ratio, [1.0, 0.0], clipping).sum().backward()
        assert_close(ratio.grad, torch.zeros(2))
    lonely = loss(torch.tensor([0.3]), [1.0], "separate")
    assert lonely == 0


@pytest.mark.parametrize(
    ("clipping", "expected"),
    [("separate", [-1.08, 0.814354, 0.0, -1.0, 1.0]), ("joint", [-0.54, 0.36, 0.0, -0.5, 0.5])],
)
def test_pairs_are_of_rows_with_a_choice_in_one_group(clipping, expected):
    """The pair of `test_by_hand`, a row without a choice, and a pair of another group with D = 1 at ratio 1."""
    logprobs = torch.tensor([[0.1, 0.2], [-0.1, 9.0], [5.0, 5.0], [0.0, 3.0], [0.0, 2.0]])
    batch = Batch(
        action_mask=torch.tensor([[1, 1], [1, 0], [0, 0], [1, 0], [1, 0]]).bool(),
        group=torch.tensor([0, 0, 0, 1, 1]),
        episode_reward=torch.tensor([1.95, 1.05, 7.0, 1.0, 0.0]),
        behavior_logprobs=torch.zeros(5, 2),
    )
    out = PolicyOutput(logprobs, logprobs)
    assert_close(PairwiseSurrogate(0.2, clipping)(out, batch), torch.tensor(expected), atol=1e-6, rtol=0)


def test_ratios_stay_within_20_nats():
    """The worse row at ratio e^60 has the loss e^20; the better row at e^-60 has -e^-20."""
    far = loss([-60.0, 60.0], [1.0, 0.0], "separate")
    assert_close(far, torch.tensor([-2.0611536e-9, 4.8516520e8]), atol=0, rtol=1e-5)


def test_the_offset_is_the_prompts():
    reward = PromptOffset({"exact": 1.0}, std=2.0)
    group = [Episode(Prompt("toy/train/3"), 0, i, scores={"exact": float(i)}) for i in range(3)]
    first = reward(group)
    assert first == reward(group) and [first[i] - first[0] for i in (1, 2)] == pytest.approx([1.0, 2.0])
    other = [Episode(Prompt("toy/train/4"), 0, 0, scores={"exact": 0.0})]
    assert reward(other)[0] != first[0] != 0.0
    assert first[0] == 2 * derive_rng("prompt_offset", 0, "toy/train/3").normal()
    assert PromptOffset({"exact": 1.0}, std=0.0)(group) == [0.0, 1.0, 2.0]
