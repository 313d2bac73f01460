"""Learning a map of states and paying a policy for moving along its skill on it."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.ops.abstraction import centred_one_hot, skill_progress, step_slack
from mmrl.phases.base import Phase, Turn
from mmrl.phases.output import Output
from mmrl.types import PolicyOutput


def _steps(batch: Batch, turn: Turn, abstraction: str, senses: str, one_hot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Places before and after, and the skill that counts, each [N, K]."""
    actor, phi = turn.models[senses], turn.models[abstraction]
    here = actor.features(batch.observation())
    there = actor.features({name[5:]: column for name, column in batch.items() if name.startswith("next.")})
    skill = phi.skill(here)
    return phi(here), phi(there), centred_one_hot(skill) if one_hot else skill


class SkillSteps(Output):
    """How far every step goes along its skill, extra["progress"] [N, 1], and extra["slack"] [N, 1] of its length.

    Args:
        most: slack that counts; a step that is shorter by more is as good.
        one_hot: skills are one of so many, and not directions.
        abstraction: name of the map.
        price: name of the price of a step's length, given as extra["log_price"].
        senses: name of the policy through whose senses the map sees.
    """

    gives = frozenset({"progress", "slack", "log_price"})

    def __init__(
        self,
        most: float = 1e-3,
        one_hot: bool = False,
        abstraction: str = "abstraction",
        price: str = "step_price",
        senses: str = "policy",
    ):
        self.most, self.one_hot, self.abstraction, self.price, self.senses = most, one_hot, abstraction, price, senses

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.abstraction, self.price, self.senses})

    def __call__(self, batch: Batch, turn: Turn) -> PolicyOutput:
        before, after, skill = _steps(batch, turn, self.abstraction, self.senses, self.one_hot)
        progress, slack = skill_progress(before, after, skill)[:, None], step_slack(before, after, self.most)[:, None]
        extra = {"progress": progress, "slack": slack, "log_price": turn.models[self.price].log}
        nothing = torch.zeros_like(progress)
        return PolicyOutput(nothing, nothing, extra=extra)


class SkillReward(Phase):
    """reward = (phi(s') - phi(s)) . z by the map as it is now, in place of what was paid.

    Args:
        one_hot: skills are one of so many, and not directions.
        abstraction: name of the map.
        senses: name of the policy through whose senses the map sees.
    """

    writes = frozenset({"reward"})

    def __init__(self, one_hot: bool = False, abstraction: str = "abstraction", senses: str = "policy"):
        self.one_hot, self.abstraction, self.senses = one_hot, abstraction, senses

    @property
    def models(self) -> frozenset[str]:
        return frozenset({self.abstraction, self.senses})

    @torch.no_grad()
    def __call__(self, batch: Batch, turn: Turn) -> Batch:
        reward = skill_progress(*_steps(batch, turn, self.abstraction, self.senses, self.one_hot))
        turn.log({"reward": reward.mean()})
        return batch.with_columns(reward=reward)
