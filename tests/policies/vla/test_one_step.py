"""Heads that sample in one step: distilled from a teacher of many steps, or with average velocities."""

import copy

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.methods.robots.rl100 import DistillationTarget
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.policies.vla.chains import DDIM, FlowODE, FlowSDE, GaussianChunk, MeanFlow
from tests.laws.heads import build_policy, demonstrated, pi0_policy, raws, sampled

TEACHERS = pytest.mark.parametrize("teacher", [FlowODE(4), DDIM(steps=4, levels=16)], ids=str)


def rows(policy):
    """Rows of one decision in six contexts, with the columns that an annotator is given."""
    batch = sampled(policy)
    count = torch.arange(batch.rows)
    flags = {name: count < 0 for name in ("is_last", "is_terminal")}
    whole = {name: count for name in ("group", "prompt_id", "prompt_length", "episode", "step", "policy_version")}
    reals = {name: torch.zeros(batch.rows) for name in ("reward", "episode_reward", "bootstrap_value")}
    return batch.with_columns(**flags, **whole, **reals)


def distilled(policy, batch):
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0, models={"reference": policy})
    return DistillationTarget(rows=4)(batch, ctx)


@TEACHERS
def test_the_teacher_starts_from_the_rows_own_noise(teacher):
    """The same noise, played by the same weights through the teacher's transitions, none of them drawn."""
    policy = build_policy("one_step", teacher=teacher)
    batch = rows(policy)
    after = distilled(policy, batch)
    other = copy.deepcopy(policy)
    other.chain = teacher
    observation = other.collate([other.encode(raw) for raw in raws(6)])
    played = other.act(observation, Sampling(decode="mean"), Noise(range(6)))
    assert_close(batch["action"][:, :5], played.action[:, :5], atol=0, rtol=0)
    assert_close(after["action"][:, 5:], played.action[:, -5:], atol=1e-5, rtol=0)
    assert torch.equal(after["action"][:, :5], batch["action"][:, :5])
    assert (after["action"][:, 5:] - batch["action"][:, 5:]).abs().max() > 0.1


def test_its_likelihood_is_the_squared_error_of_distillation():
    policy = build_policy("one_step", teacher=FlowODE(4))
    torch.nn.init.zeros_(policy.expert.log_std.weight)  # one std everywhere, the middle of [.08, .16]
    batch = distilled(policy, rows(policy))
    width = (0.08 * 0.16) ** 0.5
    weights = [p for name, p in policy.named_parameters() if "log_std" not in name and "map" not in name]
    term = (NegativeLogLikelihood()(policy(batch), batch)).sum()
    one = torch.autograd.grad(term, weights, allow_unused=True)
    observation = policy.encode_context(batch.observation())
    noise = batch["action"][:, :5]
    end = noise - policy.predict(observation.prefix, noise, torch.ones(6))[0]
    error = (end - batch["action"][:, 5:]).square().sum() / (2 * width**2)
    other = torch.autograd.grad(error, weights, allow_unused=True)
    assert_close(one, other, rtol=1e-3, atol=1e-2)
    assert any(slope is not None and slope.abs().max() > 1 for slope in one)


def test_learning_it_brings_one_step_to_the_teachers_end():
    policy = build_policy("one_step", teacher=FlowODE(4), freeze_vision=True)
    reference = copy.deepcopy(policy)
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=3e-3)

    def missed():
        batch = sampled(policy, 6, Sampling(decode="mean"), first=1000)
        return (batch["action"][:, 5:] - reference.distillation_target(batch)).square().mean().item()

    before = missed()
    for step in range(60):
        batch = sampled(policy, 6, first=6 * step)
        end = reference.distillation_target(batch)
        batch = batch.with_columns(action=torch.cat([batch["action"][:, :5], end], dim=1))
        optimizer.zero_grad()
        NegativeLogLikelihood()(policy(batch), batch).mean().backward()
        optimizer.step()
    assert missed() < 0.5 * before  # on noise that it has not seen


def test_over_no_time_an_average_velocity_is_the_velocity():
    policy = build_policy("mean_flow")
    policy.chain = MeanFlow(flow_ratio=1.0)
    batch = demonstrated(policy, np.zeros((3, 5, 3), np.float32))
    result = policy(batch).extra["denoising_error"]
    targets = [policy.chain.sample_target(torch.zeros(3, 5, 3), noise) for noise in [Noise(batch["row_seed"].numpy())]]
    x, time, target, end_time = targets[0]
    assert torch.equal(time, end_time)
    prefix = policy.encode_context(batch.observation()).prefix
    assert_close(result[..., 0], policy.predict(prefix, x, time, time)[0] - target, atol=1e-5, rtol=0)


def test_the_target_holds_the_derivative_of_the_network():
    """Against central differences along the path, and none of it is learned through."""
    policy = build_policy("mean_flow")
    torch.nn.init.normal_(policy.expert.duration_proj.weight, std=0.1)
    policy.chain = MeanFlow(flow_ratio=0.0)
    batch = demonstrated(policy, np.full((3, 5, 3), 0.4, np.float32))
    prefix = policy.encode_context(batch.observation()).prefix
    denoising = policy.chain.sample_target(batch["action"], Noise(range(3)))
    x, time, velocity, end_time = denoising
    assert (end_time < time).all()
    h = 1e-2
    ahead, behind = (policy.predict(prefix, x + s * velocity, time + s, end_time)[0] for s in (h, -h))
    target = velocity - (time - end_time)[:, None, None] * (ahead - behind) / (2 * h)
    prediction = policy.predict(prefix, x, time, end_time)[0]
    assert_close(policy._prediction_error(prefix, denoising), prediction - target, atol=2e-2, rtol=2e-2)
    weight = policy.expert.action_in_proj.weight
    slope = torch.autograd.grad(policy._prediction_error(prefix, denoising).sum(), weight, retain_graph=True)[0]
    assert_close(slope, torch.autograd.grad(prediction.sum(), weight)[0], atol=1e-4, rtol=1e-4)


def test_times_of_average_velocities():
    denoising = MeanFlow().sample_target(torch.zeros(4000, 5, 3), Noise(range(4000)))
    assert ((denoising.end_time <= denoising.time) & (denoising.end_time > 0) & (denoising.time < 1)).all()
    # a share of one half of 4000: standard error .008
    assert (denoising.end_time == denoising.time).float().mean().item() == pytest.approx(0.5, abs=0.04)
    # sigmoid(-.4) is the median of one draw: both are below it in a quarter of the rows
    assert (denoising.time < torch.tensor(-0.4).sigmoid()).float().mean().item() == pytest.approx(0.25, abs=0.035)


def test_what_cannot_be_distilled_is_refused():
    with pytest.raises(ValueError, match="begin with noise"):
        build_policy("gaussian", teacher=FlowODE())
    with pytest.raises(ValueError, match="begin with noise"):
        build_policy("one_step", teacher=GaussianChunk())
    with pytest.raises(ValueError, match="average velocities"):
        build_policy("one_step", teacher=MeanFlow())
    with pytest.raises(ValueError, match="average_velocity"):
        pi0_policy(MeanFlow())
    policy = build_policy("flow_sde", teacher=FlowSDE())
    with pytest.raises(ValueError, match=r"policy\.chain\.steps=1"):
        policy.distillation_target(sampled(policy))


def test_stds_have_a_ceiling():
    """Levels 2 and 1 of 5 are open; the first of them would have more than .2."""
    policy = build_policy("ddpm_last")
    batch = sampled(policy)
    assert batch["action_mask"].unflatten(1, (6, 5)).all(2).tolist() == [[False] * 4 + [True] * 2] * 6
    entropy = policy(batch).entropy.unflatten(1, (6, 5))[:, 4:]
    most, least = (3 * (0.5 * np.log(2 * np.pi * np.e) + np.log(width)) for width in (0.2, 0.1))
    assert_close(entropy[:, 0], torch.full((6, 5), most), atol=1e-4, rtol=0, check_dtype=False)
    assert_close(entropy[:, 1], torch.full((6, 5), least), atol=1e-4, rtol=0, check_dtype=False)
