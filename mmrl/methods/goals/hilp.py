"""HILP: an embedding whose distances are temporal distances, and a policy for every direction in it.

Foundation Policies with Hilbert Representations, 2024, arXiv:2402.15567; the order of an update is in
conf/phases/hilp.yaml, the embedding and what is done at test time in `mmrl.policies.control.hilbert`.

- V(s, g) = -||phi(s) - phi(g)||, fitted by an expectile of r + gamma V_target(s', g): `GoalDistances`,
  `TemporalDistanceLoss`
- r_z = <phi(s') - phi(s), z>, z uniform over unit vectors: `RandomSkills`; then IQL of `mmrl.methods.control.iql`
- z of the recorded rewards, and the states among which midpoints are looked for: `ZeroShotSkill`
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import PolicyOutput
from mmrl.data.offline.hindsight import HindsightReplayBuffer
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.policies.control.hilbert import HilbertPolicy, fit_skill, hilbert_distance, unit_vectors

log = logging.getLogger(__name__)


def _next(batch: Batch) -> dict[str, Tensor]:
    return {name[5:]: column for name, column in batch.items() if name.startswith("next.")}


class GoalDistances(Output):
    """Temporal-difference errors of V_k(s, g) = -||phi_k(s) - phi_k(g)||, with target networks.

    extra["temporal_errors"] [N, 1, K]: r + discount V'_k(s', g) - V_k(s, g), with gradient to V_k alone.
    extra["temporal_advantage"] [N, 1]: r + discount min_k V'_k(s', g) - mean_k V'_k(s, g). V' are the targets'.

    Args:
        actor: name of the policy, which has the representation.
        target: name of its target network.
    """

    def __init__(self, actor: str = "policy", target: str = "target_policy"):
        self.actor, self.target = actor, target

    def gives(self) -> frozenset[str]:
        return frozenset({"temporal_errors", "temporal_advantage"})

    def models(self) -> frozenset[str]:
        return frozenset({self.actor, self.target})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        policy, target = ctx.models[self.actor], ctx.models[self.target].representation
        states, goals = policy.encoder(batch.observation()), policy.scale_goal(batch["obs.goal"])
        v = -hilbert_distance(policy.representation(states), policy.representation(goals))  # [N, K]
        with torch.no_grad():
            aims = target(goals)
            here = -hilbert_distance(target(states), aims)
            after = -hilbert_distance(target(policy.encoder(_next(batch))), aims)
            reward, discount = batch["reward"][:, None], batch["discount"][:, None]
            advantage = reward + discount * after.amin(1, keepdim=True) - here.mean(1, keepdim=True)
        errors = (reward + discount * after - v)[:, None]
        nothing = torch.zeros_like(reward)
        extra = {"temporal_errors": errors, "temporal_advantage": advantage}
        return PolicyOutput(nothing, nothing, extra=extra)


@dataclass(frozen=True)
class TemporalDistanceLoss(Term):
    """HILP's loss of phi: the sum over k of |tau - 1(A < 0)| e_k^2, e_k the errors and A the advantage.

    Args:
        expectile: tau; the nearer to 1, the more the distance is that of the fastest recorded way.
    """

    expectile: float = 0.95

    def __post_init__(self) -> None:
        check_interval("TemporalDistanceLoss", "(0, 1)", expectile=self.expectile)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"temporal_errors", "temporal_advantage"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        negative = out.extra["temporal_advantage"].detach() < 0
        squares = out.extra["temporal_errors"].square().sum(-1)
        weighted = torch.where(negative, 1 - self.expectile, self.expectile) * squares
        return zero_outside(weighted, batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        return {"advantage": zero_outside(out.extra["temporal_advantage"].detach(), batch["action_mask"])}


class RandomSkills(Phase):
    """Give each row a direction z, uniform over unit vectors, and the reward <phi(s') - phi(s), z>, without an end.

    Args:
        gamma: discount of the policy that moves in direction z.
        actor: name of the policy, which has the representation.
    """

    def __init__(self, gamma: float = 0.99, actor: str = "policy"):
        self.gamma, self.actor = gamma, actor

    def writes(self) -> frozenset[str]:
        return frozenset({"obs.skill", "next.skill", "reward", "discount"})

    def models(self) -> frozenset[str]:
        return frozenset({self.actor})

    def check(self) -> None:
        super().check()
        check_fraction("RandomSkills", gamma=self.gamma)

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        policy = ctx.models[self.actor]
        before = policy.embed(policy.encoder(batch.observation()))
        change = policy.embed(policy.encoder(_next(batch))) - before  # [N, D]
        skill = unit_vectors(ctx.normal(*change.shape))
        reward = (change * skill).sum(-1)
        ctx.log({"step_length": change.norm(dim=-1).mean()})
        columns = {"obs.skill": skill, "next.skill": skill, "reward": reward}
        return batch.with_columns(**columns, discount=torch.full_like(reward, self.gamma))


class ZeroShotSkill(L.Callback):
    """At the end of an iteration, fit z to the recorded rewards and draw the landmarks of midpoints, from the buffer.

    Args:
        rows: recorded transitions that the least squares are of.
    """

    def __init__(self, rows: int = 10_000):
        check_at_least(1, "trainer.callbacks: ZeroShotSkill", rows=rows)
        self.rows = rows

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        replay = trainer.datamodule.replay  # type: ignore[attr-defined]
        if not isinstance(pl_module.policy, HilbertPolicy) or not isinstance(replay, HindsightReplayBuffer):
            raise ValueError(
                f"trainer.callbacks: ZeroShotSkill fits the skill of policy=hilbert to a HindsightReplayBuffer, not of "
                f"{type(pl_module.policy).__name__} to a {type(replay).__name__}; leave the callback out"
            )

    @torch.no_grad()
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *batch: Any) -> None:
        if not trainer.is_last_batch:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        policy, replay = pl_module.policy, data.replay
        rng = derive_rng(data.seed, "zero-shot skill", data.iteration)
        rows = {name: column.to(policy.device) for name, column in replay.read(replay.draw(self.rows, rng)).items()}
        before = policy.embed(policy.encoder({"state": rows["obs.state"]}))
        change = policy.embed(policy.encoder({"state": rows["next.state"]})) - before
        if not rows["reward"].any():
            log.warning("all recorded rewards are 0, so HILP has a direction for goals and none for rewards")
        policy.skill.copy_(fit_skill(change.cpu(), rows["reward"].cpu()))
        places = replay.draw(len(policy.landmarks), rng)
        policy.landmarks.copy_(replay.storage.columns["obs.state"][places])
