"""METRA: unsupervised skill discovery by a representation with bounded change per environment step, and SAC.

METRA: Scalable Unsupervised RL with Metric-Aware Abstraction, 2024, arXiv:2310.08887, algorithm 1, whose order is in
conf/phases/metra.yaml.

- the reward (phi(s') - phi(s)) . z: `skill_reward`; the constraint |phi(s') - phi(s)| <= 1: `constraint_slack`
- phi: `Representation`; its forward pass on replayed transitions: `SkillTransitions`
- losses of phi (equation 10) and of the multiplier lambda: `RepresentationLoss`, `ConstraintPenalty`, `DualLoss`
- the skill reward in place of the simulator's: `SkillReward`
- state coverage (section 5.2): `StateTrace`, `StateCoverage`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_positive
from mmrl.core.types import Context, Episode, PolicyOutput
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.learners.phases.base import Phase, UpdateContext
from mmrl.learners.phases.forward_pass import Output
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.policies.control.encoder import perceptron
from mmrl.transforms.base import EpisodeTransform


def skill_reward(
    before: Tensor,  # [N, K] phi(s)
    after: Tensor,  # [N, K] phi(s')
    skill: Tensor,  # [N, K]
) -> Tensor:  # [N]
    """METRA's reward of a transition for the skill z: (phi(s') - phi(s)) . z."""
    return ((after - before) * skill).sum(-1)


def constraint_slack(
    before: Tensor,  # [N, K]
    after: Tensor,  # [N, K] phi(s')
    epsilon: float,
) -> Tensor:  # [N]
    """Slack of METRA's constraint: min(epsilon, 1 - |phi(s') - phi(s)|^2 / K), negative for a step that is too long.

    The mean over dimensions is that of the authors' code; the paper has the sum.
    """
    return (1 - (after - before).square().mean(-1)).clamp(max=epsilon)


def centred_one_hot(
    skill: Tensor,  # [N, K]
) -> Tensor:  # [N, K]
    """(z - mean z) K / (K - 1): 1 for the skill itself and -1 / (K - 1) for each of the others."""
    count = skill.shape[-1]
    return (skill - skill.mean(-1, keepdim=True)) * count / (count - 1)


class Representation(nn.Module):
    """METRA's representation function phi(s): a multilayer perceptron from a state vector to K dimensions.

    The last entries of the state vector are the episode's skill, which phi does not read.

    Args:
        features: length of the state vector, skill included.
        dims: K, length of the skill and of the representation.
        hidden: widths of the hidden layers, with rectified linear units.
    """

    def __init__(self, features: int, dims: int, hidden: Sequence[int] = (128, 128)):
        super().__init__()
        if not 0 < dims < features:
            raise ValueError(
                f"dims={dims} must be at least 1 and less than features={features}, the state's length with the skill"
            )
        self.dims = dims
        widths = [features - dims, *hidden]
        self.body, self.head = perceptron(widths, nn.ReLU), nn.Linear(widths[-1], dims)

    def forward(self, features: Tensor) -> Tensor:
        """phi(s) [N, K]."""
        return self.head(self.body(features[:, : -self.dims]))

    def skill(self, features: Tensor) -> Tensor:
        """The skill [N, K] in a state vector."""
        return features[:, -self.dims :]


def _transitions(
    batch: Batch, ctx: UpdateContext, representation: str, encoder: str, one_hot: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """phi(s), phi(s') and the skill z, each [N, K]."""
    policy, phi = ctx.models[encoder], ctx.models[representation]
    features = policy.features(batch.observation())
    next_features = policy.features({name[5:]: column for name, column in batch.items() if name.startswith("next.")})
    skill = phi.skill(features)
    return phi(features), phi(next_features), centred_one_hot(skill) if one_hot else skill


class SkillTransitions(Output):
    """METRA's forward pass on replayed transitions: extra["skill_reward"] and the constraint's extra["slack"], [N, 1].

    Args:
        epsilon: upper bound of the slack, METRA's relaxation constant.
        one_hot: skills are discrete, one-hot vectors, and not directions.
        representation: name of the representation function phi.
        multiplier: name of the Lagrange multiplier, whose logarithm is extra["log_multiplier"].
        encoder: name of the policy whose encoder computes the features.
    """

    def __init__(
        self,
        epsilon: float = 1e-3,
        one_hot: bool = False,
        representation: str = "representation",
        multiplier: str = "lagrange_multiplier",
        encoder: str = "policy",
    ):
        self.epsilon, self.one_hot, self.encoder = epsilon, one_hot, encoder
        self.representation, self.multiplier = representation, multiplier

    def gives(self) -> frozenset[str]:
        return frozenset({"skill_reward", "slack", "log_multiplier"})

    def models(self) -> frozenset[str]:
        return frozenset({self.representation, self.multiplier, self.encoder})

    def __call__(self, batch: Batch, ctx: UpdateContext) -> PolicyOutput:
        before, after, skill = _transitions(batch, ctx, self.representation, self.encoder, self.one_hot)
        reward = skill_reward(before, after, skill)[:, None]
        slack = constraint_slack(before, after, self.epsilon)[:, None]
        extra = {"skill_reward": reward, "slack": slack, "log_multiplier": ctx.models[self.multiplier].log}
        nothing = torch.zeros_like(reward)
        return PolicyOutput(nothing, nothing, extra=extra)


class SkillReward(Phase):
    """METRA's reward (phi(s') - phi(s)) . z under the current representation, in place of the simulator's.

    Args:
        one_hot: skills are discrete, one-hot vectors, and not directions.
        representation: name of the representation function phi.
        encoder: name of the policy whose encoder computes the features.
    """

    def __init__(self, one_hot: bool = False, representation: str = "representation", encoder: str = "policy"):
        self.one_hot, self.representation, self.encoder = one_hot, representation, encoder

    def writes(self) -> frozenset[str]:
        return frozenset({"reward"})

    def models(self) -> frozenset[str]:
        return frozenset({self.representation, self.encoder})

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        reward = skill_reward(*_transitions(batch, ctx, self.representation, self.encoder, self.one_hot))
        ctx.log({"reward": reward.mean()})
        return batch.with_columns(reward=reward)


@dataclass(frozen=True)
class RepresentationLoss(Term):
    """METRA's representation loss: maximise (phi(s') - phi(s)) . z. Source: arXiv:2310.08887, eq. 10."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"skill_reward"})  # [N, T]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.extra["skill_reward"], batch["action_mask"])


@dataclass(frozen=True)
class ConstraintPenalty(Term):
    """METRA's constraint term -lambda * slack, the Lagrange multiplier lambda detached."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"slack", "log_multiplier"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -out.extra["log_multiplier"].detach().exp() * zero_outside(out.extra["slack"], batch["action_mask"])


@dataclass(frozen=True)
class DualLoss(Term):
    """METRA's dual loss for the Lagrange multiplier: log lambda * slack, the slack detached.

    lambda rises where the slack is negative: where |phi(s') - phi(s)| exceeds its bound.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"slack", "log_multiplier"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.extra["log_multiplier"] * zero_outside(out.extra["slack"].detach(), batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        mask = batch["action_mask"]
        multiplier = out.extra["log_multiplier"].detach().exp().expand(mask.shape)
        return {"multiplier": multiplier, "slack": zero_outside(out.extra["slack"].detach(), mask)}


@dataclass(frozen=True)
class StateTrace(EpisodeTransform):
    """Write the grid cells that an episode visits into its `info`: state_trace.

    Args:
        entries: indices of the state vector that are coordinates of the grid.
        cell_size: side of a cell, in the unit of the entries.
    """

    entries: tuple[int, ...] = (0, 1)
    cell_size: float = 1.0

    def __post_init__(self) -> None:
        check_positive("state_trace:", cell_size=self.cell_size)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(each, info={**each.info, "state_trace": self._cells(each)}) for each in episodes]

    def _cells(self, episode: Episode) -> list[tuple[int, ...]]:
        states = [turn.completion.observation for turn in episode.turns]
        if not states:
            return []
        if "state" not in states[0]:
            raise KeyError(f"state_trace needs observations with a state vector; these have {sorted(states[0])}")
        places = torch.stack([each["state"] for each in states])[:, list(self.entries)] / self.cell_size
        return sorted({tuple(cell) for cell in places.floor().int().tolist()})


@dataclass(frozen=True)
class StateCoverage(Evaluator):
    """Coverage of the state space: number of distinct cells that all episodes visit, `visited`, and of `episodes`.

    Source: METRA, 2023, section 5.2, arXiv:2310.08887.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        if any("state_trace" not in episode.info for episode in valid):
            raise KeyError("evaluator StateCoverage: no info['state_trace']; put StateTrace into evaluation.transforms")
        cells = {cell for episode in valid for cell in episode.info["state_trace"]}
        return {"visited": float(len(cells)), "episodes": float(len(valid)), "errors": count_errors(episodes)}
