"""Parts of a model's output as columns."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.statistics import StatisticColumns
from tests.laws.example import Example, Tabular, context, rows

LAWS = [
    Example(
        StatisticColumns(columns={"old_mean_logprobs": "mean_logprob", "old_logprobs": "logprobs"}, rows=3), scores=True
    ),
    Example(StatisticColumns(columns={"ref_logprobs": "logprobs"}, model="reference", rows=3), scores=True),
]


def test_each_part_comes_from_one_pass_in_the_order_of_the_rows():
    batch, ctx = rows(per_row=False), context(per_row=False)
    calls = []
    ctx.policy.register_forward_pre_hook(lambda module, arguments: calls.append(arguments[0].rows))
    columns = {"old_logprobs": "logprobs", "nucleus_entropy": "entropy", "old_mean_logprobs": "mean_logprob"}
    out = StatisticColumns(columns=columns, rows=4)(batch, ctx)
    assert calls == [4, 4, 3]
    expected = Tabular(2, per_row=False)(batch)
    assert_close(out["old_logprobs"], expected.logprobs.detach())
    assert_close(out["nucleus_entropy"], expected.entropy.detach())
    assert_close(out["old_mean_logprobs"], expected.extra["mean_logprob"].detach())


def test_another_model_and_another_context():
    batch, ctx = rows(per_row=False), context(per_row=False)
    reference = StatisticColumns(columns={"ref_logprobs": "logprobs"}, model="reference")
    assert reference.models() == {"reference"}
    assert_close(reference(batch, ctx)["ref_logprobs"], Tabular(3, per_row=False)(batch).logprobs.detach())
    state = 5 - batch["obs.state"]
    blind = StatisticColumns(columns={"other_logprobs": "logprobs"}, context="blind")
    assert blind.contexts() == {"blind"}
    found = blind(batch.with_columns(**{"other.blind.state": state}), ctx)["other_logprobs"]
    assert_close(found, Tabular(2, per_row=False)(batch.with_columns(**{"obs.state": state})).logprobs.detach())


def test_refusals():
    batch, ctx = rows(per_row=False), context(per_row=False)
    with pytest.raises(ValueError, match=r"no \['peak'\]; name them under model.policy.statistics"):
        StatisticColumns(columns={"old_logprobs": "peak"})(batch, ctx)
    with pytest.raises(ValueError, match="one number per choice"):
        StatisticColumns(columns={"old_logprobs": "choice_logprobs"})(batch, ctx)
    with pytest.raises(KeyError, match="no model 'nobody'"):
        StatisticColumns(columns={"old_logprobs": "logprobs"}, model="nobody")(batch, ctx)
    with pytest.raises(ValueError, match="columns is empty"):
        StatisticColumns(columns={})
    with pytest.raises(ValueError, match="rows"):
        StatisticColumns(columns={"old_logprobs": "logprobs"}, rows=0)


def test_the_needs_are_the_statistics_alone():
    part = StatisticColumns(columns={"old_logprobs": "logprobs", "old_mean_logprobs": "mean_logprob"})
    assert part.needs() == {"mean_logprob"} and part.writes() == {"old_logprobs", "old_mean_logprobs"}
    assert torch.is_tensor(part(rows(per_row=False), context(per_row=False))["old_logprobs"])
