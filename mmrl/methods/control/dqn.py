"""DQN: a Q-network that learns from a replay buffer, with targets of an older copy of itself.

Human-level control through deep reinforcement learning, 2015, doi:10.1038/nature14236, algorithm 1, whose order is in
conf/phases/dqn.yaml.

- the target y = r + gamma max_a' Q_target(s', a'): `QLearningTarget`; that of double Q-learning is its switch `double`
- Q(s, a) of replayed actions: `ActionValues`
- the loss with errors clipped to [-1, 1]: `ClippedTDLoss`
- epsilon-greedy actions and dueling networks: mmrl/policies/control/q_network.py
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside


class QLearningTarget(Phase):
    """Target of Q-learning: R = reward + discount * max_a' Q_target(s', a'), over the legal actions of s'.

    Double: R = reward + discount * Q_target(s', argmax_a' Q(s', a')): one network chooses a', the other values it.
    Source: Deep Reinforcement Learning with Double Q-learning, 2016, equation 4 with section "Double DQN",
    arXiv:1509.06461. The columns `reward` and `discount` come from the replay buffer: with n steps they are the summed
    rewards and gamma^n, and discount is 0 after a terminal state only.

    Args:
        double: the learning network chooses a'.
        network: name of the learning Q-network.
        target: name of its target network.
    """

    def __init__(self, double: bool = False, network: str = "policy", target: str = "target_policy"):
        self.double, self.network, self.target = double, network, target

    def reads(self) -> frozenset[str]:
        return frozenset({"reward", "discount"})

    def writes(self) -> frozenset[str]:
        return frozenset({"returns"})

    def models(self) -> frozenset[str]:
        return frozenset({self.target} | ({self.network} if self.double else set()))

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        next_observation = {name[5:]: column for name, column in batch.items() if name.startswith("next.")}
        q = ctx.models[self.target].legal_q_values(next_observation)
        chooses = ctx.models[self.network].legal_q_values(next_observation) if self.double else q
        value = q.gather(1, chooses.argmax(-1, keepdim=True))  # [N, 1]
        return batch.with_columns(returns=batch["reward"][:, None] + batch["discount"][:, None] * value)


class ActionValues(Output):
    """Q-values of the replay buffer's actions: extra["q"] [N, 1, 1].

    Args:
        network: name of the Q-network.
    """

    def __init__(self, network: str = "policy"):
        self.network = network

    def gives(self) -> frozenset[str]:
        return frozenset({"q"})

    def models(self) -> frozenset[str]:
        return frozenset({self.network})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        q = ctx.models[self.network].q_values(batch.observation()).gather(1, batch["action"])
        nothing = torch.zeros_like(q)
        return PolicyOutput(nothing, nothing, extra={"q": q[..., None]})


@dataclass(frozen=True)
class ClippedTDLoss(Term):
    """DQN's loss: half the squared TD error with the error clipped to [-delta, delta] in its gradient (Huber's loss).

    0.5 e^2 where |e| <= delta, else delta (|e| - delta / 2), with e = Q - R and R the column `returns`.

    Args:
        delta: largest magnitude of the gradient of one row.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        check_positive("ClippedTDLoss", delta=self.delta)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "returns"})

    def needs(self) -> frozenset[str]:
        return frozenset({"q"})  # [N, T, K]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask, returns = batch["action_mask"], batch["returns"]
        returns = zero_outside(returns if returns.dim() == 2 else returns[:, None], mask)
        error = (out.extra["q"] - returns[..., None]).abs()
        clipped = error.clamp(max=self.delta)
        return zero_outside((clipped * (error - 0.5 * clipped)).sum(-1), mask)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        return {"q": zero_outside(out.extra["q"].mean(dim=-1), batch["action_mask"])}
