"""The policy with a continuous head: what learns, what is frozen, what is remembered, and how it plays."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.objectives.imitation_chain import DenoisingLoss
from mmrl.policies.vla.chains import DDIM, FlowODE, FlowSDE, GaussianChunk, MeanFlow
from mmrl.policies.vla.small.expert import time_features
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.offline.demonstrations import Demonstrations
from sims.tabletop import Reach
from sims.task import SimTask
from tests.laws.heads import SMALL, build_policy, demonstrated, sampled


def touched(policy, loss) -> set[str]:
    policy.zero_grad()
    loss.backward()
    return {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}


def test_every_parameter_learns():
    policy = build_policy("flow_noise", value_head=True)
    out = policy(sampled(policy))
    names = {name for name, _ in policy.named_parameters()}
    assert touched(policy, out.logprobs.sum() + out.values.sum()) == names


def test_an_evaluation_leaves_nothing_behind_that_cannot_be_learned_through():
    """Lightning validates in inference mode, whose tensors autograd refuses; a policy keeps none of them."""
    policy = build_policy("flow_noise")
    with torch.inference_mode():
        sampled(policy)
    assert touched(policy, policy(sampled(policy)).logprobs.sum())


def test_freezing():
    policy = build_policy("flow_sde", freeze_vision=True, freeze_context=True)
    names = touched(policy, policy(sampled(policy)).logprobs.sum())
    assert names and all(name.startswith("expert.") for name in names)


@pytest.mark.parametrize("critic, trained", [("shared", True), ("detached", False), ("own", False)])
def test_what_a_value_trains(critic, trained):
    policy = build_policy("flow_sde", value_head=True, critic=critic)
    names = touched(policy, policy(sampled(policy)).values.sum())
    assert any(name.startswith("value_head.") for name in names)
    assert any(name.startswith(("transformer.", "vision_encoder.", "expert.")) for name in names) is trained


def test_checkpointed_blocks_have_the_same_gradient():
    plain, saving = (
        build_policy("flow_sde_all").train(),
        build_policy("flow_sde_all", gradient_checkpointing=True).train(),
    )
    batch = sampled(plain)
    for policy in (plain, saving):
        policy(batch).logprobs.sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters()):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_a_vision_transformer_of_timm():
    args = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 2, "out_indices": [0]}
    policy = build_policy("flow_sde", vision="vit_tiny_patch16_224", vision_args=args)
    batch = sampled(policy)
    out = policy(batch)
    assert out.extra["map_logits"].shape == (6, 2, 4, 4)
    assert (out.logprobs - batch["behavior_logprobs"]).abs().max() < 1e-4


def test_training_places_are_a_function_of_the_seed():
    policy = build_policy("flow_sde")
    batch = demonstrated(policy, np.zeros((4, 5, 3), np.float32))
    whole = policy(batch).extra["denoising_error"]
    assert whole.shape == (4, 5, 3, 2)
    part = batch.select(torch.tensor([2, 0]))
    assert_close(policy(part).extra["denoising_error"], whole[[2, 0]], atol=1e-5, rtol=0)
    other = policy(batch.with_columns(row_seed=batch["row_seed"] + 1)).extra["denoising_error"]
    assert (other - whole).abs().max() > 0.1


def test_demonstrations_and_own_chains_in_one_batch():
    """A row of each: the clone's error is where the demonstration is, the log-probabilities where the chain is."""
    policy = build_policy("flow_sde")
    own, shown = sampled(policy, 2), demonstrated(policy, np.zeros((2, 5, 3), np.float32))
    width = own["action_mask"].shape[1]
    wide = {"action": (0, 0, 0, width - 5), "action_mask": (0, width - 5), "behavior_logprobs": (0, width - 5)}
    both = {
        name: torch.cat([column, torch.nn.functional.pad(shown[name], wide[name]) if name in wide else shown[name]])
        for name, column in own.with_columns(row_seed=torch.zeros(2).long()).items()
        if name != "output"
    }
    batch = own.__class__(both)
    out = policy(batch)
    assert (out.logprobs[:2] - own["behavior_logprobs"]).abs().max() < 1e-4 and (out.logprobs[2:] == 0).all()
    error = DenoisingLoss()(out, batch)
    assert (error[:2] == 0).all() and (error[2:, :5] > 0).all() and (error[2:, 5:] == 0).all()
    alone = DenoisingLoss()(policy(shown), shown)
    assert_close(error[2:, :5], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("chain", [FlowSDE(), DDIM(), GaussianChunk()], ids=str)
def test_it_plays_and_is_scored_again(chain):
    """Through engine, simulator and collate: unplayed control steps are masked in every block, the ratio is one."""
    torch.manual_seed(0)
    policy = ActionFlowPolicy(chain, expert_layers=1, freeze_vision=True, value_head=True, **SMALL).eval()
    task = SimTask(Reach(image_size=16, radius_m=0.06, max_decisions=6), count=64)
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(temperature=2.0), seed=0, iteration=0, group_size=2)
    episodes = EpisodicRollout().collect([(slot, task[slot]) for slot in range(12)], ctx)
    batch = collate(episodes, policy)
    out = policy(batch)
    assert (out.logprobs - batch["behavior_logprobs"]).masked_fill(~batch["action_mask"], 0).abs().max() < 1e-4
    assert "obs.visual" in batch and "obs.image" not in batch
    played = batch["action_mask"].unflatten(1, (-1, 5)).any(1).sum(1)  # control steps that count
    assert played.min() >= 1 and played.max() == 5
    assert (
        batch["action_mask"].unflatten(1, (-1, 5)).sum(2)[batch["action_mask"].unflatten(1, (-1, 5)).any(2)] <= 5
    ).all()
    assert any(e.ended == "time" and e.bootstrap_value != 0 for e in episodes)
    assert all(e.bootstrap_value == 0 for e in episodes if e.ended == "done")


def test_kept_demonstrations_are_learned_at_other_places_in_every_iteration():
    policy = build_policy("flow_sde")
    task = SimTask(Reach(image_size=16), count=4)
    rollout = Demonstrations(cache_episodes=True)
    seeds = []
    for iteration in (0, 1, 0):
        ctx = Context(task, None, policy, Sampling(), seed=0, iteration=iteration)
        episodes = rollout.collect([(0, task[1])], ctx)
        batch = collate(episodes, policy)
        assert batch["action"].shape[1:] == (5, 3) and batch["action_mask"].all()
        seeds.append(batch["row_seed"].tolist())
    assert seeds[0] == seeds[2] and not set(seeds[0]) & set(seeds[1])
    assert len(set(seeds[0])) == len(seeds[0])


def test_times_can_be_told_apart():
    features = time_features(torch.tensor([0.0, 0.25, 0.5, 1.0]), 32)
    assert features.shape == (4, 32)
    assert torch.cdist(features, features)[~torch.eye(4, dtype=torch.bool)].min() > 0.5


def test_chains_refuse_what_they_cannot_be():
    for make, word in (
        (lambda: FlowSDE(steps=1), "steps"),
        (lambda: FlowSDE(noise_level=0.0), "noise_level"),
        (lambda: FlowSDE(steps=3, first_stochastic_step=2, ignore_last=True), "first_stochastic_step"),
        (lambda: DDIM(steps=3, levels=20), "multiple"),
        (lambda: DDIM(eta=2.0), "eta"),
        (lambda: GaussianChunk(init_std=0.0), "init_std"),
        (lambda: FlowODE(steps=0), "steps"),
        (lambda: DDIM(first_stochastic_step=5), "first_stochastic_step"),
        (lambda: DDIM(min_std=0.2, max_std=0.1), "max_std"),
        (lambda: MeanFlow(flow_ratio=1.5), "flow_ratio"),
    ):
        with pytest.raises(ValueError, match=word):
            make()
