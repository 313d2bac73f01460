"""The KL penalty in the reward, by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.kl_penalty import KLPenalty
from mmrl.core.batch import Batch
from tests.laws.example import Example

LAWS = [Example(KLPenalty(0.1, level)) for level in ("token", "sequence")]

NAN = float("nan")
BATCH = Batch(  # an episode of two rows, one of one row, and a demonstration
    episode=torch.tensor([0, 0, 1, 2]),
    reward=torch.tensor([0.0, 1.0, 1.0, 1.0]),
    episode_reward=torch.tensor([1.0, 1.0, 1.0, 1.0]),
    action_mask=torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1]]).bool(),
    behavior_logprobs=torch.tensor([[-1.0, -1.0], [-2.0, NAN], [-1.0, -3.0], [0.0, 0.0]]),
    ref_logprobs=torch.tensor([[-1.5, -2.0], [-1.0, NAN], [-1.0, -2.5], [-4.0, -4.0]]),
    is_demo=torch.tensor([False, False, False, True]),
)


def test_per_sequence():
    # k1: 0.5 + 1 and -1 in the first episode, -0.5 in the second; beta 0.1
    out = KLPenalty(0.1)(BATCH, None)
    assert_close(out["reward"], torch.tensor([-0.15, 1.1, 1.05, 1.0]))
    assert_close(out["episode_reward"], torch.tensor([0.95, 0.95, 1.05, 1.0]))


def test_per_token():
    out = KLPenalty(0.1, "token")(BATCH, None)
    assert_close(out["token_rewards"], torch.tensor([[-0.05, -0.1], [0.1, 0.0], [0.0, 0.05], [0.0, 0.0]]))
    assert "reward" not in KLPenalty(0.1, "token").writes()
    # k2: d^2 / 2
    out = KLPenalty(0.1, "token", "k2")(BATCH, None)
    assert_close(out["token_rewards"][0], torch.tensor([-0.0125, -0.05]))


def test_refusals():
    with pytest.raises(ValueError, match=r"kl_penalty\.beta"):
        KLPenalty(-1.0)
    with pytest.raises(ValueError, match=r"kl_penalty\.level"):
        KLPenalty(level="episode")
