"""Annotators that run a model over the rows again."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.annotators.logprobs import Logprobs, OldLogprobs, ReferenceLogprobs
from mmrl.annotators.values import Values
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from tests.laws.example import Example

LAWS = [
    Example(ReferenceLogprobs(rows=3), scores=True),
    Example(OldLogprobs(rows=3), scores=True),
    Example(Logprobs(column="other_logprobs", model="reference", rows=3), scores=True),
]


class Linear(nn.Module):
    """Scores by one weight; dropout would betray training mode. The frozen part stays in evaluation mode."""

    def __init__(self, weight, value_head=True):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.dropout, self.frozen, self.value_head = nn.Dropout(0.5), nn.Dropout(0.5).eval(), value_head
        self.sizes = []

    def forward(self, batch):
        self.sizes.append(batch.rows)
        assert not torch.is_grad_enabled()
        logprobs = self.frozen(self.dropout(-self.weight * batch["action"]))
        return PolicyOutput(logprobs, logprobs, logprobs.mean(1) if self.value_head else None)


def rows(n=5):
    one, flag = torch.zeros(n), torch.zeros(n).bool()
    return Batch(
        action=torch.arange(2.0 * n).view(n, 2),
        action_mask=torch.ones(n, 2).bool(),
        behavior_logprobs=torch.zeros(n, 2),
        **{name: one for name in ("temperature", "reward", "episode_reward", "bootstrap_value")},
        **{name: one.long() for name in ("group", "prompt_id", "prompt_length", "episode", "step", "policy_version")},
        **{name: flag for name in ("is_last", "is_terminal", "is_demo")},
    )


def context(policy, **models):
    return Context(None, None, policy, Sampling(), seed=0, iteration=0, models=models)


def test_each_writes_what_its_model_says():
    batch, ctx = rows(), context(Linear(1.0), reference=Linear(2.0))
    assert_close(ReferenceLogprobs(2)(batch, ctx)["ref_logprobs"], -2 * batch["action"])
    assert_close(OldLogprobs(2)(batch, ctx)["old_logprobs"], -batch["action"])
    assert_close(Values(2)(batch, ctx)["values"], -batch["action"].mean(1))
    assert ctx.policy.sizes == [2, 2, 1, 2, 2, 1]


def test_modes_are_put_back():
    ctx = context(Linear(1.0).train())
    ctx.policy.frozen.eval()
    OldLogprobs()(rows(), ctx)
    assert ctx.policy.training and ctx.policy.dropout.training and not ctx.policy.frozen.training


def test_refusals():
    with pytest.raises(KeyError, match=r"model\.reference=true"):
        ReferenceLogprobs()(rows(), context(Linear(1.0)))
    with pytest.raises(ValueError, match="value_head=true"):
        Values()(rows(), context(Linear(1.0, value_head=False)))
    with pytest.raises(ValueError, match=r"Values\.rows"):
        Values(0)


def test_episodes_of_a_prompt_are_scored_together_and_rows_keep_their_places():
    class Watching(Linear):
        def forward(self, batch):
            met.append(batch["prompt_id"].tolist())
            return super().forward(batch)

    met = []
    batch = rows(6).with_columns(prompt_id=torch.tensor([1, 0, 1, 0, 2, 0]))
    assert_close(OldLogprobs(3)(batch, context(Watching(1.0)))["old_logprobs"], -batch["action"])
    assert met == [[0, 0, 0], [1, 1, 2]]
