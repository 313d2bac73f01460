"""What each phase of an update does to the batch and to the parameters."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext, part
from mmrl.learners.phases.bellman_target import BellmanTarget
from mmrl.learners.phases.polyak_update import PolyakUpdate
from mmrl.learners.phases.random_shift import crop_images
from mmrl.objectives.q import ActorLoss, EntropyBonus, TDLoss, TemperatureLoss
from mmrl.policies.control.actor import DeterministicPolicy, SquashedPolicy
from mmrl.policies.control.critic import Critics, LagrangeMultiplier

MASK = Batch(action_mask=torch.ones(2, 1, dtype=torch.bool))


def context(models, normal=torch.zeros) -> UpdateContext:
    return UpdateContext(models, normal, lambda loss: None, lambda metrics: None)


def models(kind=SquashedPolicy) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "policy": kind(observation_dims=3, actions=2, hidden=[8]),
        "target_critic": Critics(3, 2, [8]),
        "ent_coef": LagrangeMultiplier(0.5),
    }


def transitions(n: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        **{"obs.state": torch.randn(n, 3, generator=generator), "next.state": torch.randn(n, 3, generator=generator)},
        reward=torch.randn(n, generator=generator),
        discount=torch.tensor([0.9, 0.0] * (n // 2)),
    )


def test_the_target_takes_the_smaller_critic_and_the_entropy_bonus():
    parts, batch = models(), transitions(6)
    returns = BellmanTarget(ent_coef="ent_coef")(batch, context(parts))["returns"]
    sample = parts["policy"].rsample(batch["next.state"], torch.zeros(6, 2))
    q = parts["target_critic"](batch["next.state"], sample.action)[:, 0]
    assert (q.argmin(1).unique().tolist()) == [0, 1]  # both are the smaller one somewhere
    value = torch.minimum(q[:, 0], q[:, 1]) - 0.5 * sample.logprobs[:, 0]
    assert_close(returns[:, 0], batch["reward"] + batch["discount"] * value)
    assert_close(returns[1::2, 0], batch["reward"][1::2])  # nothing follows a terminal state
    assert not returns.requires_grad


def test_target_policy_noise_is_clipped_and_stays_in_the_box():
    parts, batch = models(DeterministicPolicy), transitions(4)
    phase = BellmanTarget(target_policy_noise=0.2, target_noise_clip=0.5)
    plain = parts["policy"].rsample(batch["next.state"], torch.zeros(4, 2)).action
    for size, moved in ((1.0, 0.2), (100.0, 0.5)):
        returns = phase(batch, context(parts, lambda *shape, size=size: torch.full(shape, size)))["returns"]
        q = parts["target_critic"](batch["next.state"], (plain + moved).clamp(-1, 1)).amin(dim=-1)
        assert_close(returns[:, 0], batch["reward"] + batch["discount"] * q[:, 0])


def test_target_networks_are_polyak_averages():
    network, target = nn.Linear(2, 2), nn.Linear(2, 2)
    before = copy.deepcopy(target.state_dict())
    PolyakUpdate({"target": "network"}, tau=0.25)(Batch(), context({"network": network, "target": target}))
    for name, value in target.state_dict().items():
        assert_close(value, 0.75 * before[name] + 0.25 * network.state_dict()[name])
    PolyakUpdate({"target": "network"}, tau=1.0)(Batch(), context({"network": network, "target": target}))
    assert_close(dict(target.state_dict()), dict(network.state_dict()))


def test_each_critic_has_its_td_loss_and_the_actor_maximises_the_smallest():
    q = torch.tensor([[[1.0, 3.0]], [[2.0, -1.0]]], requires_grad=True)
    out = PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra={"q": q})
    batch = MASK.with_columns(returns=torch.tensor([[2.0], [0.0]]))
    assert_close(TDLoss()(out, batch), torch.tensor([[1.0], [2.5]]))  # (1 + 1) / 2 and (4 + 1) / 2
    assert ActorLoss()(out, batch).tolist() == [[-1], [1]]
    assert ActorLoss("first")(out, batch).tolist() == [[-1], [-2]]
    assert ActorLoss("mean")(out, batch).tolist() == [[-2], [-0.5]]
    ActorLoss()(out, batch).sum().backward()
    assert q.grad.tolist() == [[[-1, 0]], [[0, -1]]]


@pytest.mark.parametrize("logprob, sign", [(3.0, -1), (1.0, 1)])
def test_the_temperature_rises_when_the_entropy_is_below_its_target(logprob, sign):
    """Target entropy -2: at log pi = 3 the entropy -3 is below it, so the step must raise alpha; at 1 lower it."""
    log_ent_coef = torch.tensor([0.7], requires_grad=True)
    logprobs = torch.full((2, 1), logprob, requires_grad=True)
    out = PolicyOutput(logprobs, -logprobs, extra={"log_ent_coef": log_ent_coef})
    TemperatureLoss(target_entropy=-2.0)(out, MASK).mean().backward()
    assert log_ent_coef.grad.item() == sign and logprobs.grad is None
    log_ent_coef.grad = None
    EntropyBonus()(out, MASK).mean().backward()
    assert log_ent_coef.grad is None
    assert_close(logprobs.grad, torch.full((2, 1), torch.tensor(0.7).exp().item() / 2))


def test_images_are_shifted_and_their_edges_repeated():
    image = torch.arange(2 * 3 * 3, dtype=torch.uint8).view(2, 3, 3, 1)
    same, moved = crop_images(image, torch.tensor([[1, 1], [0, 2]]), 1)
    assert torch.equal(same, image[0]) and moved.dtype == torch.uint8
    # one up and one to the right: the first row twice, the last column twice
    assert moved[..., 0].tolist() == [[10, 11, 11], [10, 11, 11], [13, 14, 14]]


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"no model 'policy\.wheel'"):
        part(models(), "policy.wheel")
