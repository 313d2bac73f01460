"""Imagined trajectories by a loop, their gradients, and the columns that a step gives to the next phases."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.imagination import ImaginationStarts, ImaginedTrajectories, ImaginedValues
from mmrl.learners.phases.observed_states import ObservedStates
from mmrl.learners.phases.writing_step import WritingStep
from mmrl.objectives.world_model.imagination import ImaginedReturn
from mmrl.objectives.world_model.predictions import RewardPrediction
from mmrl.policies.control.value import ValueNetwork
from mmrl.policies.control.world_model.networks import ObservationDecoder
from mmrl.policies.control.world_model.policy import WorldModelPolicy

SIZE = 5 + 3


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    sizes = {"belief_size": 5, "state_size": 3, "hidden_size": 6, "hidden": [7]}
    heads = {name: ValueNetwork(SIZE, [6]) for name in ("reward", "critic", "continuation")}
    decoder = ObservationDecoder(SIZE, observation_dims=4, hidden=[6])
    return {"policy": WorldModelPolicy(observation_dims=4, actions=2, **sizes), "decoder": decoder, **heads}


def context(parts, normal=torch.zeros) -> UpdateContext:
    return UpdateContext(parts, normal, lambda loss: loss.backward(), lambda metrics: None)


def starts(rows=4, horizon=3) -> Batch:
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(rows, horizon, dtype=torch.bool)
    return Batch(
        belief=torch.randn(rows, 5, generator=generator),
        latent=torch.randn(rows, 3, generator=generator),
        action_mask=mask,
        loss_weights=mask / mask.numel(),
    )


@pytest.mark.parametrize("continuation", [None, "continuation"])
def test_trajectories_by_a_loop(continuation):
    """Without noise: s' = prior mean; reward and value are those of the state after the decision."""
    parts, batch = models(), starts()
    out = ImaginedTrajectories(gamma=0.9, gae_lambda=0.5, continuation=continuation)(batch, context(parts))
    policy, beliefs, states = parts["policy"], batch["belief"], batch["latent"]
    seen, rewards, values, discounts = [], [], [], []
    for _ in range(3):
        features = torch.cat([beliefs, states], -1)
        seen.append(features)
        action = policy.head(policy.actor(features)).loc.tanh()
        beliefs = policy.rssm.transition(beliefs, states, action)
        states = policy.rssm.prior(beliefs)[0]
        after = torch.cat([beliefs, states], -1)
        rewards.append(parts["reward"](after)[:, 0])
        values.append(parts["critic"](after)[:, 0])
        goes_on = parts["continuation"](after)[:, 0].sigmoid() if continuation else torch.ones(4)
        discounts.append(0.9 * goes_on)
    last = rewards[2] + discounts[2] * values[2]
    middle = rewards[1] + discounts[1] * (0.5 * values[1] + 0.5 * last)
    first = rewards[0] + discounts[0] * (0.5 * values[0] + 0.5 * middle)
    assert_close(out.extra["returns"], torch.stack([first, middle, last], 1))
    assert_close(out.extra["imagined"], torch.stack(seen, 1))
    reach = torch.stack([torch.ones(4), discounts[0], discounts[0] * discounts[1]], 1)
    assert_close(out.extra["reach"], reach.detach())
    values = ImaginedValues()(Batch(imagined=out.extra["imagined"]), context(parts)).values
    assert_close(values, torch.stack([parts["critic"](each)[:, 0] for each in seen], 1))


def test_the_actor_learns_through_the_model_and_not_through_what_it_reads():
    """Of one decision d return / d action goes through transition, prior and reward; finite differences of a bias."""
    parts, batch = models(), starts(horizon=1)
    output = ImaginedTrajectories(gamma=0.9)

    def earned():
        return output(batch, context(parts)).extra["returns"].sum()

    bias = parts["policy"].head.linear.bias
    (slope,) = torch.autograd.grad(earned(), bias)
    step = torch.zeros_like(bias)
    step[0] = 1e-2
    with torch.no_grad():
        bias += step
        above = earned()
        bias -= 2 * step
        below = earned()
    assert_close(slope[0], (above - below) / 2e-2, rtol=1e-2, atol=1e-4)
    assert slope[0].abs() > 1e-4
    # the second decision's features carry no gradient to the first action: its share of the loss is the model's alone
    out = output(starts(horizon=2), context(parts))
    assert out.extra["imagined"].requires_grad and not out.extra["reach"].requires_grad


def test_starts_are_states_after_which_the_episode_goes_on():
    """Sequences of 3 and 2 observations; the last one of the first sequence follows a terminal decision."""
    mask = torch.tensor([[True, True, True], [True, True, False]])
    continues = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    belief = torch.arange(6.0).view(2, 3, 1)
    batch = Batch(belief=belief, latent=-belief, continues=continues, action_mask=mask, loss_weights=mask / 5)
    after = ImaginationStarts(horizon=5)(batch, context({}))
    assert after["belief"][:, 0].tolist() == [0, 1, 3, 4] and after["latent"][:, 0].tolist() == [0, -1, -3, -4]
    assert after["action_mask"].shape == (4, 5) and after["action_mask"].all()
    assert_close(after["loss_weights"], torch.full((4, 5), 1 / 20))
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        ImaginationStarts(horizon=0).check()


def sequences() -> Batch:
    generator = torch.Generator().manual_seed(2)
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    return Batch(
        **{"obs.state": torch.randn(2, 4, 4, generator=generator)},
        previous_action=torch.randn(2, 4, 2, generator=generator),
        previous_reward=torch.randn(2, 4, generator=generator),
        continues=torch.ones(2, 4),
        observed=mask,
        action_mask=mask,
        loss_weights=mask / 7,
    )


def test_observed_states_have_the_heads_of_their_features():
    parts, batch = models(), sequences()
    out = ObservedStates(continuation="continuation", balance=0.8)(batch, context(parts))
    policy = parts["policy"]
    sequence = policy.rssm.observe(
        batch["obs.state"], batch["previous_action"].tanh(), torch.zeros(2, 4, 3), batch["observed"]
    )
    assert_close(out.extra["belief"], sequence.belief)
    assert_close(out.extra["reward_prediction"], parts["reward"](sequence.features)[..., 0])
    assert_close(out.extra["continuation_logits"], parts["continuation"](sequence.features)[..., 0])
    means = parts["decoder"](sequence.features.flatten(0, 1))["state"].view(2, 4, 4)
    assert_close(out.extra["reconstruction_error"], 0.5 * (means - batch["obs.state"]).square().sum(-1))
    assert out.extra["information"][1, 3].item() == 0 and (out.extra["information"][batch["observed"]] > 0).all()
    bare = ObservedStates(decoder=None)
    assert bare.gives() == {"belief", "latent", "information", "reward_prediction"} and bare.models() == {
        "policy",
        "reward",
    }


def test_a_step_writes_its_columns_without_gradient():
    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    step = WritingStep(
        ["reward"], ObservedStates(), {"reward": RewardPrediction()}, optimizer, columns=["belief", "information"]
    )
    step.check()
    assert step.writes() == {"belief", "information"}
    parts, batch = models(), sequences()
    after = step(batch, context(parts))
    assert not after["belief"].requires_grad and after["belief"].shape == (2, 4, 5)
    assert all(parameter.grad is not None for parameter in parts["reward"].parameters())
    wrong = WritingStep(["reward"], ObservedStates(), {"reward": RewardPrediction()}, optimizer, columns=["returns"])
    with pytest.raises(ValueError, match=r"columns names \['returns'\]"):
        wrong.check()
    missing = WritingStep(["policy"], ImaginedValues(), {"returns": ImaginedReturn()}, optimizer)
    with pytest.raises(ValueError, match="needs"):
        missing.check()
