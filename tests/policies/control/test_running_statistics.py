"""Running statistics of observations: their numbers, and that they go where the policy goes."""

import numpy as np
import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.control.actor import SquashedPolicy
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.control.running_statistics import RunningStatistics


def test_mean_and_variance_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    parts = [rng.normal(1e3, 5, (rows, 2)) * [1, 1e-3] for rows in (3, 50, 7)]
    statistics = RunningStatistics(2)
    for part in parts:
        statistics.count_rows(torch.from_numpy(part[:2]), lambda value: value)
        statistics.count_rows(torch.from_numpy(part[2:]), lambda value: value)
        statistics.include_rows()
    rows = np.concatenate(parts)
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(statistics.var, rows.var(0), rtol=1e-4)
    assert statistics.count == 60
    whole = RunningStatistics(2)
    whole.count_rows(torch.from_numpy(rows), lambda value: value)
    whole.include_rows()
    torch.testing.assert_close(whole.var, statistics.var, rtol=1e-4, atol=0)
    expected = (rows[:1] - rows.mean(0)) / rows.std(0)
    np.testing.assert_allclose(statistics(torch.from_numpy(rows[:1]).float()), expected, atol=1e-3)


def test_two_processes_count_the_rows_of_both():
    one, both = RunningStatistics(1), RunningStatistics(1)
    mine, other = torch.tensor([[1.0], [2.0]]), torch.tensor([[6.0]])
    sums = []
    for rows in (mine, other):
        RunningStatistics(1).count_rows(rows, lambda value: sums.append(value) or value)
    both.count_rows(mine, lambda value: sum(sums))
    one.count_rows(torch.cat([mine, other]), lambda value: value)
    for each in (one, both):
        each.include_rows()
    assert torch.equal(one.mean, both.mean) and torch.equal(one.var, both.var) and float(one.mean) == 3


@pytest.mark.parametrize("kind", [ControlPolicy, SquashedPolicy])
def test_rows_count_from_the_next_iteration_on_and_are_saved(kind, tmp_path):
    torch.manual_seed(0)
    options = {"kind": "gaussian"} if kind is ControlPolicy else {}
    policy = kind(3, 2, hidden=[8], normalize_observations=True, **options)
    rows = torch.randn(64, 3) * 50 + 7
    observation = {"state": rows}

    def actions(each):
        return each.act(observation, Sampling(decode="argmax"), Noise(range(64))).action

    before = actions(policy)
    policy.count_rows(Batch({"obs.state": rows}), lambda value: value)
    assert torch.equal(actions(policy), before)
    policy.save_pretrained(tmp_path / "noted")
    policy.include_rows()
    after = actions(policy)
    assert not torch.equal(after, before)
    again = kind(path=str(tmp_path / "noted"))
    assert torch.equal(actions(again), before)
    again.include_rows()
    assert torch.equal(actions(again), after)
    policy.save_pretrained(tmp_path / "included")
    assert torch.equal(actions(kind(path=str(tmp_path / "included"))), after)


def test_what_is_sampled_is_scored_with_the_same_statistics():
    policy = ControlPolicy(3, 2, hidden=[8], normalize_observations=True)
    policy.count_rows(Batch({"obs.state": torch.randn(99, 3) * 9}), lambda value: value)
    policy.include_rows()
    inputs = policy.encode_batch({"state": np.random.default_rng(0).normal(size=(5, 3)) * 9})
    action = policy.act(inputs, Sampling(), Noise(range(5)))
    scored = policy(Batch({"obs.state": inputs["state"], "action": action.action, "temperature": torch.ones(5)}))
    torch.testing.assert_close(scored.logprobs, action.behavior_logprobs)
    torch.testing.assert_close(scored.values, action.values)
