"""Forward passes of an off-policy update: from a batch to the output that loss terms read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext


class Output(ABC):
    """One forward pass with gradient."""

    def gives(self) -> frozenset[str]:
        """Parts of the output beyond log-probs and entropy."""
        return frozenset()

    @abstractmethod
    def models(self) -> frozenset[str]:
        """Names of the models that it uses."""

    @abstractmethod
    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput: ...


class ReplayActions(Output):
    """Q-values of the replay buffer's actions: extra["q"] [N, 1, K].

    Args:
        critic: name of the critics.
        actor: name of the policy whose actions are stored.
    """

    def __init__(self, critic: str = "critic", actor: str = "policy"):
        self.critic, self.actor = critic, actor

    def gives(self) -> frozenset[str]:
        return frozenset({"q"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        actor = ctx.models[self.actor]
        action = actor.to_action(batch["action"][:, 0])
        q = ctx.models[self.critic](actor.features(batch.observation()), action)
        nothing = q.new_zeros(q.shape[:2])
        return PolicyOutput(nothing, nothing, extra={"q": q})


class PolicyActions(Output):
    """Q-values of reparameterised actions of the policy: extra["q"] [N, 1, K], with gradient through the action.

    Args:
        critic: name of the critics.
        actor: name of the policy.
        ent_coef: name of the entropy coefficient, whose logarithm is extra["log_ent_coef"]; None without one.
    """

    def __init__(self, critic: str = "critic", actor: str = "policy", ent_coef: str | None = None):
        self.critic, self.actor, self.ent_coef = critic, actor, ent_coef

    def gives(self) -> frozenset[str]:
        return frozenset({"q"} if self.ent_coef is None else {"q", "log_ent_coef"})

    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor} | ({self.ent_coef} if self.ent_coef else set()))

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        actor = ctx.models[self.actor]
        features = actor.features(batch.observation())
        sample = actor.rsample(features, ctx.normal(len(features), actor.actions))
        extra = {"q": ctx.models[self.critic](features, sample.action)}
        if self.ent_coef is not None:
            extra["log_ent_coef"] = ctx.models[self.ent_coef].log
        return PolicyOutput(sample.logprobs, -sample.logprobs, extra=extra)
