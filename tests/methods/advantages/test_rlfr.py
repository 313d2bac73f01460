"""Rewards from the deviations of hidden states from a flow, by hand and on sequences of a known rule."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Collector, PolicyOutput
from mmrl.methods.advantages.rlfr import FlowRewards, VelocityNetwork, filter_deviations, flow_deviation, flow_error
from tests.laws.example import Example, context, rows

LAWS = [Example(FlowRewards(rows=3), scores=True)]

RAW = torch.tensor([[0.4, 1.2, 2.0, 0.8, 3.6]])
ALL = torch.ones(1, 5).bool()


def test_rewards_by_hand():
    # scaled to [0, .25, .5, .125, 1]; above .6 the last alone; -.01 of it beside an outcome of 1: .99
    assert_close(filter_deviations(RAW, ALL, -1.0, 5), torch.tensor([[0, 0.25, 0.5, 0.125, 1]]))
    kept = filter_deviations(RAW, ALL, 0.6, 15)
    assert_close(kept, torch.tensor([[0.0, 0, 0, 0, 1]]))
    assert_close(-0.01 * kept + torch.tensor([0.0, 0, 0, 0, 1]), torch.tensor([[0.0, 0, 0, 0, 0.99]]))
    assert_close(filter_deviations(RAW, ALL, 0.2, 2), torch.tensor([[0, 0, 0.5, 0, 1]]))
    assert not filter_deviations(torch.full((1, 5), 2.0), ALL, 0.6, 15).any()
    inside = torch.tensor([[True, True, False, True, False]])  # .4 to 1.2
    assert_close(filter_deviations(RAW, inside, 0.0, 15), torch.tensor([[0, 1.0, 0, 0.5, 0]]))


def test_the_deviation_is_the_error_times_4_at_time_08():
    error = torch.tensor([[1.0, 3.0]])  # of two layers
    assert_close(flow_deviation(error, 0.8), torch.tensor([8.0]))

    class Wrong(torch.nn.Module):
        def forward(self, noisy, before, tau):
            return noisy

    # tau = .8, x = 2, noise = 1: noisy 1.8, velocity 1, error .8^2
    pairs, noise = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1), torch.ones(1, 1, 1)
    assert_close(flow_error(Wrong(), pairs, noise, torch.full((1, 1, 1), 0.8)), torch.tensor([[0.64]]))


def test_errors_and_velocities_by_hand():
    class Identity(torch.nn.Module):
        def forward(self, noisy, before, tau):
            return noisy

    # tau = 3/4, x = (3, 0), noise = (1, 1): noisy (2.5, .25), velocity (2, -1), squares .5^2 and 1.25^2, mean .90625
    pairs, noise = torch.tensor([[0.0, 0.0], [3.0, 0.0]]).view(2, 1, 1, 2), torch.ones(1, 1, 2)
    assert_close(flow_error(Identity(), pairs, noise, torch.full((1, 1, 1), 0.75)), torch.tensor([[0.90625]]))
    network = VelocityNetwork(1, 2, 1)
    with torch.no_grad():  # the identity behind two SiLUs, of what was read, 0, and the layer's number
        for weight in network.parameters():
            weight.fill_(float(weight.shape == (1, 1)))
        network.layer.weight.copy_(torch.tensor([[1.0], [2.0]]))
        out = network(torch.ones(1, 2, 1), torch.ones(1, 2, 1), torch.ones(1, 2, 1))
    assert_close(out[0, :, 0], torch.tensor([0.493492, 1.503361]))


def test_only_what_is_above_the_threshold_is_rewarded():
    # scaled to [0, .25, .5, 1]; .5 is not above .5; a spread of 1e-13 is a tenth of the least one that is scaled to 1
    row = torch.tensor([[0.0, 1, 2, 4]])
    assert_close(filter_deviations(row, ALL[:, :4], 0.5, 4), torch.tensor([[0, 0, 0, 1.0]]))
    assert_close(filter_deviations(torch.tensor([[0.0, 1e-13]]), ALL[:, :2], 0.0, 4), torch.tensor([[0, 0.1]]))


def test_every_token_between_two_choices_but_the_least_is_rewarded_without_a_threshold():
    batch, ctx = rows(per_row=False), context(per_row=False)
    part, mask = FlowRewards(threshold=0.0), batch["action_mask"]
    part(batch, ctx)
    rewarded = part(batch, replace(ctx, iteration=1))["token_rewards"] != 0
    pairs = mask[:, :-1] & mask[:, 1:]
    assert not rewarded[:, :-1][~pairs].any() and not rewarded[:, -1].any()
    assert rewarded.sum(1).tolist() == (pairs.sum(1) - 1).clamp(min=0).tolist() and rewarded.sum() == 4


def test_shuffled_sequences_deviate_more():
    """States turn by 40 degrees from token to token; in shuffled ones they jump."""
    generator = torch.Generator().manual_seed(0)
    angle = 2 * math.pi * torch.rand(200, 1, generator=generator) + math.radians(40) * torch.arange(6)
    states = torch.stack([angle.cos(), angle.sin()], -1)[:, :, None]  # [N, T, 1, 2]
    network, noise = VelocityNetwork(2, 1, 32), torch.randn(1000, 1, 2, generator=generator)
    pairs = torch.stack([states[:, :-1], states[:, 1:]]).flatten(1, 2)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(150):
        tau = torch.randn(1000, 1, 1, generator=generator).sigmoid()
        optimizer.zero_grad()
        flow_error(network, pairs, torch.randn(1000, 1, 2, generator=generator), tau).mean().backward()
        optimizer.step()
    shuffled = torch.stack([pairs[0], pairs[1][torch.randperm(1000, generator=generator)]])
    with torch.no_grad():
        here, there = (flow_error(network, each, noise, torch.full((1000, 1, 1), 0.8)) for each in (pairs, shuffled))
    assert (here[:, None, 0] < there[None, :, 0]).float().mean() > 0.7  # area under the curve


def fitted(batch, ctx):
    """A flow that has seen the right answers of iteration 0."""
    part = FlowRewards(rows=4)
    part(batch, replace(ctx, iteration=0))
    return part


def test_there_is_no_reward_before_the_first_right_answer_and_the_fit_is_one_an_iteration():
    batch, ctx = rows(per_row=False), context(per_row=False)
    part = FlowRewards(rows=4)
    wrong = batch.with_columns(episode_reward=torch.zeros(batch.rows))
    assert not part(wrong, ctx)["token_rewards"].any()
    assert not part(batch, replace(ctx, iteration=1))["token_rewards"].any()  # right ones, for the next iteration
    out = part(batch, replace(ctx, iteration=2))["token_rewards"]
    assert out.any() and (out <= 0).all() and out.min() == -0.01 and not out[:, -1].any()
    weights = copy.deepcopy(part.state_dict())
    part(batch, replace(ctx, iteration=2))  # without another fit
    assert all(torch.equal(a, b) for a, b in zip(weights["network"].values(), part.state_dict()["network"].values()))
    again = FlowRewards(rows=4)
    again.load_state_dict(weights)
    later = replace(ctx, iteration=3)
    assert_close(again(batch, later)["token_rewards"], part(batch, later)["token_rewards"])


def test_rows_are_scored_by_a_flow_that_was_not_fitted_to_them():
    """Which answers of an iteration are right changes the flow of the next one, and none of its own rewards."""
    batch, ctx = rows(per_row=False), replace(context(per_row=False), iteration=1)
    right = torch.arange(batch.rows) < batch.rows // 2
    parts = [fitted(batch, ctx) for _ in range(2)]
    first, second = (
        part(batch.with_columns(episode_reward=each.float()), ctx) for part, each in zip(parts, (right, ~right))
    )
    assert_close(first["token_rewards"], second["token_rewards"], rtol=0, atol=0)
    assert first["token_rewards"].any()
    weights = [part.state_dict()["network"]["read.weight"] for part in parts]
    assert not torch.equal(*weights)


def test_rewards_are_the_same_on_two_processes_and_with_more_padding():
    batch, ctx = rows(per_row=False), replace(context(per_row=False), iteration=1)
    expected = fitted(batch, ctx)(batch, ctx)["token_rewards"]
    group = batch["group"]
    places = [(group != 8).nonzero()[:, 0], (group == 8).nonzero()[:, 0]]
    told: list = []

    class Two(Collector):
        """The other process's part is what it gathered when it was asked alone."""

        def gather(self, items):
            told.append(items)
            return [*items, *other]

    for mine, rest in (places, places[::-1]):
        parts = FlowRewards(rows=4), FlowRewards(rows=4)
        for iteration in (0, 1):
            now, other = replace(ctx, iteration=iteration, collector=Two()), []
            parts[0](batch.select(rest), now)
            other = told[-1]
            out = parts[1](batch.select(mine), now)
        assert_close(out["token_rewards"], expected[mine])
    assert expected.any()


def test_refusals():
    with pytest.raises(ValueError, match="tau"):
        FlowRewards(tau=1.0)
    ctx = context(per_row=False)
    ctx.policy.forward = lambda batch: PolicyOutput(torch.zeros(1), torch.zeros(1))
    with pytest.raises(KeyError, match="hidden_states"):
        FlowRewards()(rows(per_row=False), ctx)
