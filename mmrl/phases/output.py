"""How a phase runs the networks: from a batch to the numbers that terms are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from mmrl.batch import Batch
from mmrl.phases.base import Turn
from mmrl.types import PolicyOutput


class Output(ABC):
    """One pass with gradient. `gives` names the parts of the output beyond log-probs and entropy."""

    gives: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()  # columns for later phases, taken from the output by `columns`

    @property
    @abstractmethod
    def models(self) -> frozenset[str]: ...

    @abstractmethod
    def __call__(self, batch: Batch, turn: Turn) -> PolicyOutput: ...

    def columns(self, out: PolicyOutput) -> dict[str, Tensor]:
        """What later phases read, without gradient."""
        return {}


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
        action = actor.bounded(batch["action"][:, 0])
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

    writes = frozenset({"proposed_logprobs"})

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

    def columns(self, out: PolicyOutput) -> dict[str, Tensor]:
        return {"proposed_logprobs": out.logprobs.detach()}


class Priced(Output):
    """A price alone: extra["log_price"] [1].

    Args:
        price: its name.
    """

    gives = frozenset({"log_price"})

    def __init__(self, price: str = "price"):
        self.price = price

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.price})

    def __call__(self, batch: Batch, turn: Turn) -> PolicyOutput:
        log = turn.models[self.price].log
        nothing = log.detach().new_zeros(batch["mask"].shape)
        return PolicyOutput(nothing, nothing, extra={"log_price": log})
