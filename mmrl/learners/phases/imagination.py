"""Trajectories in a world model: where they start, what an actor earns in them, and the values of their states."""

from __future__ import annotations

import torch

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.ops.world_model.lambda_returns import lambda_returns

register_columns(
    {
        "imagined": Column("[N, T, F]", "1", "imagination: features of the states in which the actor decides"),
        "reach": Column("[N, T]", "1", "imagination: discounted probability that a state of the trajectory is reached"),
    }
)


class ImaginationStarts(Phase):
    """Let trajectories of `horizon` decisions start in every state of the sequences after which an episode goes on.

    The batch has new rows: one for each start, with the columns belief [N, D] and latent [N, S], all choices of equal
    weight.

    Args:
        horizon: T, decisions of a trajectory.
    """

    def __init__(self, horizon: int = 15):
        self.horizon = horizon

    def check(self) -> None:
        super().check()
        check_at_least(1, "ImaginationStarts", horizon=self.horizon)

    def reads(self) -> frozenset[str]:
        return frozenset({"belief", "latent", "continues", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"belief", "latent", "action_mask"})

    def models(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        starts = batch["action_mask"] & (batch["continues"] > 0)
        belief, latent = batch["belief"][starts], batch["latent"][starts]
        mask = torch.ones(len(belief), self.horizon, dtype=torch.bool, device=belief.device)
        return Batch(belief=belief, latent=latent, action_mask=mask, loss_weights=mask / mask.numel())


class ImaginedTrajectories(Output):
    """Trajectories of the actor in the world model from the starts of a batch, with gradient through the dynamics.

    extra: "returns" [N, T], the lambda-return of each decision, "imagined" [N, T, F], the features of the state of each
    decision, and "reach" [N, T], the discount factor of that state. The actor's features have no gradient, so that it
    learns by what its actions change. Source: Dream to Control, 2020, section 3, arXiv:1912.01603.

    Args:
        gamma: discount factor of a reward one decision later.
        gae_lambda: lambda of the returns.
        policy: name of the policy, which has actor and recurrent state-space model.
        critic: name of the value network that values the states after each decision.
        reward: name of the reward model.
        continuation: name of the model of whether the episode goes on; None where it always does.
    """

    def __init__(
        self,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        policy: str = "policy",
        critic: str = "critic",
        reward: str = "reward",
        continuation: str | None = None,
    ):
        check_fraction("ImaginedTrajectories", gamma=gamma, gae_lambda=gae_lambda)
        self.gamma, self.gae_lambda = gamma, gae_lambda
        self.policy, self.critic, self.reward, self.continuation = policy, critic, reward, continuation

    def gives(self) -> frozenset[str]:
        return frozenset({"returns", "imagined", "reach"})

    def models(self) -> frozenset[str]:
        optional = {self.continuation} if self.continuation is not None else set()
        return frozenset({self.policy, self.critic, self.reward} | optional)

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        policy, (rows, horizon) = ctx.models[self.policy], batch["action_mask"].shape
        belief, state, sizes = batch["belief"], batch["latent"], (policy.actions, policy.rssm.state_size)
        features, logprobs = [torch.cat([belief, state], dim=-1)], []
        for noise in ctx.normal(rows, horizon, sum(sizes)).unbind(1):
            for_action, for_state = noise.split(sizes, dim=-1)
            sample = policy.rsample(features[-1].detach(), for_action)
            belief, state = policy.rssm.imagine(belief, state, sample.action, for_state)
            features.append(torch.cat([belief, state], dim=-1))
            logprobs.append(sample.logprobs)
        states = torch.stack(features, dim=1)  # [N, T + 1, F]
        shape, following = (rows, horizon), states[:, 1:].flatten(0, 1)
        reward = ctx.models[self.reward](following).view(shape)
        value = ctx.models[self.critic](following).view(shape)
        discount = torch.full_like(reward, self.gamma)
        if self.continuation is not None:
            discount = discount * ctx.models[self.continuation](following).view(shape).sigmoid()
        # a state is reached where every decision before it was followed by one
        first = torch.ones_like(discount[:, :1])
        reach = torch.cat([first, discount[:, :-1].detach()], dim=1).cumprod(dim=1)
        returns = lambda_returns(reward, discount, value, self.gae_lambda)
        log_p = torch.cat(logprobs, dim=1)
        extra = {"returns": returns, "imagined": states[:, :-1], "reach": reach}
        return PolicyOutput(log_p, -log_p, extra=extra)


class ImaginedValues(Output):
    """Values [N, T] of the states of imagined trajectories.

    Args:
        critic: name of the value network.
    """

    def __init__(self, critic: str = "critic"):
        self.critic = critic

    def gives(self) -> frozenset[str]:
        return frozenset({"values"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        values = ctx.models[self.critic](batch["imagined"])[..., 0]
        nothing = torch.zeros_like(values)
        return PolicyOutput(nothing, nothing, values)
