"""How a phase runs the networks: from a batch to the numbers that terms are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mmrl.batch import Batch
from mmrl.phases.base import Turn
from mmrl.types import PolicyOutput


class Output(ABC):
    """One pass with gradient. `gives` names the parts of the output beyond log-probs and entropy."""

    gives: frozenset[str] = frozenset()

    @property
    @abstractmethod
    def models(self) -> frozenset[str]: ...

    @abstractmethod
    def __call__(self, batch: Batch, turn: Turn) -> PolicyOutput: ...


class StoredActions(Output):
    """What the critics think of the actions that were done: extra["q"] [N, 1, K].

    Args:
        critic: name of the critics.
        actor: name of the policy that did them.
    """

    gives = frozenset({"q"})

    def __init__(self, critic: str = "critic", actor: str = "policy"):
        self.critic, self.actor = critic, actor

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor})

    def __call__(self, batch: Batch, turn: Turn) -> PolicyOutput:
        actor = turn.models[self.actor]
        action = actor.to_action(batch["action"][:, 0])
        q = turn.models[self.critic](actor.features(batch.observation()), action)
        nothing = q.new_zeros(q.shape[:2])
        return PolicyOutput(nothing, nothing, extra={"q": q})


class ProposedActions(Output):
    """What the critics think of what the actor would do now: extra["q"] [N, 1, K], with gradient through the action.

    Args:
        critic: name of the critics.
        actor: name of the policy.
        price: name of the price of certainty, given as extra["log_price"]; None without one.
    """

    def __init__(self, critic: str = "critic", actor: str = "policy", price: str | None = None):
        self.critic, self.actor, self.price = critic, actor, price

    @property
    def gives(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"q"} if self.price is None else {"q", "log_price"})

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.critic, self.actor} | ({self.price} if self.price else set()))

    def __call__(self, batch: Batch, turn: Turn) -> PolicyOutput:
        actor = turn.models[self.actor]
        features = actor.features(batch.observation())
        proposal = actor.propose(features, turn.normal(len(features), actor.actions))
        extra = {"q": turn.models[self.critic](features, proposal.action)}
        if self.price is not None:
            extra["log_price"] = turn.models[self.price].log
        return PolicyOutput(proposal.logprobs, -proposal.logprobs, extra=extra)
