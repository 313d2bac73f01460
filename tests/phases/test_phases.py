"""What each phase of an update does to the batch and to the parameters."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.batch import Batch
from mmrl.objectives.q import EntropyPrice, NegativeQ, PricedLogprob, SquaredQ
from mmrl.phases.base import Turn, part
from mmrl.phases.follow import Follow
from mmrl.phases.shift import shifted
from mmrl.phases.target import BellmanTarget
from mmrl.policies.actor import DeterministicPolicy, SquashedPolicy
from mmrl.policies.critic import Critics, Price
from mmrl.types import PolicyOutput

MASK = Batch(mask=torch.ones(2, 1, dtype=torch.bool))


def turn(models, normal=torch.zeros) -> Turn:
    return Turn(models, normal, lambda loss: None, lambda metrics: None)


def models(kind=SquashedPolicy) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "policy": kind(observation_dims=3, actions=2, hidden=[8]),
        "slow_critic": Critics(3, 2, [8]),
        "price": Price(0.5),
    }


def transitions(n: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        **{"obs.state": torch.randn(n, 3, generator=generator), "next.state": torch.randn(n, 3, generator=generator)},
        reward=torch.randn(n, generator=generator),
        discount=torch.tensor([0.9, 0.0] * (n // 2)),
    )


def test_the_target_takes_the_smaller_critic_and_the_price_of_certainty():
    parts, batch = models(), transitions(6)
    returns = BellmanTarget(price="price")(batch, turn(parts))["returns"]
    proposal = parts["policy"].propose(batch["next.state"], torch.zeros(6, 2))
    q = parts["slow_critic"](batch["next.state"], proposal.action)[:, 0]
    assert (q.argmin(1).unique().tolist()) == [0, 1]  # both are the smaller one somewhere
    value = torch.minimum(q[:, 0], q[:, 1]) - 0.5 * proposal.logprobs[:, 0]
    assert_close(returns[:, 0], batch["reward"] + batch["discount"] * value)
    assert_close(returns[1::2, 0], batch["reward"][1::2])  # nothing follows a terminal state
    assert not returns.requires_grad


def test_smoothing_is_bounded_and_stays_in_the_box():
    parts, batch = models(DeterministicPolicy), transitions(4)
    phase = BellmanTarget(smoothing=0.2, within=0.5)
    plain = parts["policy"].propose(batch["next.state"], torch.zeros(4, 2)).action
    for size, moved in ((1.0, 0.2), (100.0, 0.5)):
        returns = phase(batch, turn(parts, lambda *shape, size=size: torch.full(shape, size)))["returns"]
        q = parts["slow_critic"](batch["next.state"], (plain + moved).clamp(-1, 1)).amin(dim=-1)
        assert_close(returns[:, 0], batch["reward"] + batch["discount"] * q[:, 0])


def test_slow_copies_follow_at_their_rate():
    fast, slow = nn.Linear(2, 2), nn.Linear(2, 2)
    before = copy.deepcopy(slow.state_dict())
    Follow({"slow": "fast"}, rate=0.25)(Batch(), turn({"fast": fast, "slow": slow}))
    for name, value in slow.state_dict().items():
        assert_close(value, 0.75 * before[name] + 0.25 * fast.state_dict()[name])
    Follow({"slow": "fast"}, rate=1.0)(Batch(), turn({"fast": fast, "slow": slow}))
    assert_close(dict(slow.state_dict()), dict(fast.state_dict()))


def test_the_critics_are_fitted_each_and_the_actor_climbs_the_least():
    q = torch.tensor([[[1.0, 3.0]], [[2.0, -1.0]]], requires_grad=True)
    out = PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra={"q": q})
    batch = MASK.with_columns(returns=torch.tensor([[2.0], [0.0]]))
    assert_close(SquaredQ()(out, batch), torch.tensor([[1.0], [2.5]]))  # (1 + 1) / 2 and (4 + 1) / 2
    assert NegativeQ()(out, batch).tolist() == [[-1], [1]]
    assert NegativeQ("first")(out, batch).tolist() == [[-1], [-2]]
    assert NegativeQ("mean")(out, batch).tolist() == [[-2], [-0.5]]
    NegativeQ()(out, batch).sum().backward()
    assert q.grad.tolist() == [[[-1, 0]], [[0, -1]]]


@pytest.mark.parametrize("logprob, sign", [(3.0, -1), (1.0, 1)])
def test_the_price_rises_when_the_policy_is_too_certain(logprob, sign):
    """Entropy bound -2: at log pi = 3 the entropy -3 is below it, so descent must raise the price; at 1 lower it."""
    log_price = torch.tensor([0.7], requires_grad=True)
    logprobs = torch.full((2, 1), logprob, requires_grad=True)
    out = PolicyOutput(logprobs, -logprobs, extra={"log_price": log_price})
    EntropyPrice(entropy=-2.0)(out, MASK).mean().backward()
    assert log_price.grad.item() == sign and logprobs.grad is None
    log_price.grad = None
    PricedLogprob()(out, MASK).mean().backward()
    assert log_price.grad is None
    assert_close(logprobs.grad, torch.full((2, 1), torch.tensor(0.7).exp().item() / 2))


def test_pictures_are_shifted_and_their_edges_repeated():
    image = torch.arange(2 * 3 * 3, dtype=torch.uint8).view(2, 3, 3, 1)
    same, moved = shifted(image, torch.tensor([[1, 1], [0, 2]]), 1)
    assert torch.equal(same, image[0]) and moved.dtype == torch.uint8
    # one up and one to the right: the first row twice, the last column twice
    assert moved[..., 0].tolist() == [[10, 11, 11], [10, 11, 11], [13, 14, 14]]


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"no model 'policy\.wheel'"):
        part(models(), "policy.wheel")
