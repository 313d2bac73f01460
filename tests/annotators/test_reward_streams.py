"""Returns of several reward streams, by hand and against GAE."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.annotators.reward_streams import RewardStreams
from tests.laws.example import Example, context, rows

LAWS = [
    Example(RewardStreams()),
    Example(RewardStreams({"reward": 1.0, "token_rewards": 0.9}, baseline="values", whiten=True)),
    Example(RewardStreams({"token_rewards": 0.9}, baseline=None)),
]


def test_with_values_and_one_discount_it_is_gae_at_lambda_1():
    batch, ctx = rows(per_row=False), context(per_row=False)
    gae = GAE(0.9, 1.0, token_rewards="token_rewards")(batch, ctx)
    own = RewardStreams({"reward": 0.9, "token_rewards": 0.9}, baseline="values")(batch, ctx)
    for name in ("advantages", "returns"):
        assert_close(own[name], gae[name])


def test_streams_add_up():
    batch, ctx = rows(per_row=False), context(per_row=False)
    parts = ({"reward": 1.0}, {"token_rewards": 0.5})
    alone = [RewardStreams(part, baseline=None)(batch, ctx)["advantages"] for part in parts]
    assert_close(RewardStreams(parts[0] | parts[1], baseline=None)(batch, ctx)["advantages"], sum(alone))


def test_the_baseline_of_the_group_by_hand():
    # group 0: episodes 0 (one row, outcome 0, penalties -.5 and -.25) and 1 (outcome 1, none): returns of the first
    # choices -.75 and 1, mean .125; group 1 has one episode, whose own return is its baseline
    batch, ctx = rows(per_row=False).select(torch.tensor([1, 2, 8])), context(per_row=False)
    rewards = torch.tensor([[-0.5, -0.25], [0.0, 0.0], [0.0, 0.0]])
    batch = batch.with_columns(
        group=torch.tensor([0, 0, 1]), reward=torch.tensor([0.0, 1.0, 3.0]), bootstrap_value=torch.zeros(3),
        action_mask=torch.tensor([[1, 1], [1, 0], [1, 1]]).bool(), token_rewards=rewards,
    )  # fmt: skip
    out = RewardStreams()(batch, ctx)["advantages"]
    assert_close(out, torch.tensor([[-0.875, -0.375], [0.875, 0.0], [0.0, 0.0]]))


def test_refusals():
    with pytest.raises(ValueError, match=r"gammas .* \[0, 1\]"):
        RewardStreams({"reward": 1.5})
    with pytest.raises(ValueError, match="at least one column"):
        RewardStreams({})
    with pytest.raises(ValueError, match="baseline"):
        RewardStreams(baseline="mean")
    with pytest.raises(ValueError, match="values per choice"):
        RewardStreams(baseline="values")(rows(per_row=True), context(per_row=True))
