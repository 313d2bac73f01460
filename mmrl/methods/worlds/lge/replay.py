"""LGE's learner: a replay buffer of decisions in a text world, and the targets of their action values.

Decisions are stored with all admissible actions of what follows, whatever the guide left. Released code of LGE, 2024,
hitzkrieg/drrn-scienceworld-clone, drrn/drrn.py and drrn/memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Observation, Prompt, Turn
from mmrl.transforms.base import StatefulTransform


@dataclass(frozen=True)
class StoredDecision:
    """One stored decision: the encoded observation, the number of the action, its reward and the next observation."""

    key: str  # of the prompt
    observation: Observation
    action: int
    reward: float
    following: Observation | None  # None where the episode is over


def q_learning_targets(
    reward: Tensor,  # [N]
    next_q: Tensor,  # [N, K], small beyond the admissible actions
    done: Tensor,  # [N] bool
    gamma: float,
) -> Tensor:  # [N]
    """y = r + gamma (1 - done) max_a' Q(s', a')."""
    return reward + gamma * torch.where(done, 0.0, next_q.amax(1))


class DecisionReplay(StatefulTransform):
    """Exchange played episodes for stored decisions, each with the target of its action value in `returns`.

    The targets are those of the weights before the iteration. An episode that time ended is over, as in the released
    code. One process only.

    Args:
        rows: decisions to learn from in an iteration; fewer as long as fewer are stored.
        capacity: stored decisions; the oldest leave first.
        gamma: discount factor per decision.
        priority_fraction: share of the rows that is drawn from episodes in which something was earned.
        batch_size: decisions whose targets are computed at once.
    """

    def __init__(
        self,
        rows: int = 1024,
        capacity: int = 100_000,
        gamma: float = 0.9,
        priority_fraction: float = 0.5,
        batch_size: int = 256,
    ):
        part = "DecisionReplay"
        check_at_least(1, part, rows=rows, capacity=capacity, batch_size=batch_size)
        check_fraction(part, gamma=gamma, priority_fraction=priority_fraction)
        self.rows, self.capacity, self.gamma = rows, capacity, gamma
        self.priority_fraction, self.batch_size = priority_fraction, batch_size
        self.buffers: dict[str, list[StoredDecision]] = {"earned": [], "others": []}

    def writes(self) -> frozenset[str]:
        return frozenset({"returns"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if ctx.world_size > 1:
            raise ValueError("DecisionReplay keeps its buffer in one process; set trainer.devices=1")
        for episode in episodes:
            decisions = read_decisions(episode)
            self.buffers["earned" if any(each.reward > 0 for each in decisions) else "others"] += decisions
        self.buffers = {name: stored[-self.capacity :] for name, stored in self.buffers.items()}
        sampled = self.draw(derive_rng("lge replay", ctx.seed, ctx.iteration))
        first = 1 + max((episode.group for episode in episodes), default=-1)  # a stored decision is none of the played
        return [
            Episode(Prompt(each.key), first + number, 0, [Turn(completion)], source="replay")
            for number, (each, completion) in enumerate(zip(sampled, self.replay(sampled, ctx)))
        ]

    def draw(self, rng: np.random.Generator) -> list[StoredDecision]:
        """Draw decisions without replacement; what one buffer lacks the other one gives."""
        earned, others = self.buffers["earned"], self.buffers["others"]
        total = min(self.rows, len(earned) + len(others))
        from_earned = min(round(self.priority_fraction * total), len(earned))
        from_earned = max(from_earned, total - len(others))
        parts = ((earned, from_earned), (others, total - from_earned))
        return [stored[place] for stored, count in parts for place in rng.choice(len(stored), count, replace=False)]

    def replay(self, decisions: Sequence[StoredDecision], ctx: Context) -> list[Completion]:
        """The decisions as completions that none of this run's policies sampled now, with their targets."""
        targets: list[float] = []
        for start in range(0, len(decisions), self.batch_size):
            targets += self.compute_targets(decisions[start : start + self.batch_size], ctx.policy).tolist()
        return [
            Completion(
                each.observation,
                torch.tensor([each.action]),
                torch.zeros(1),
                torch.ones(1, dtype=torch.bool),
                each.action,
                extra={"returns": torch.tensor(target), "temperature": torch.tensor(ctx.sampling.temperature)},
                policy_version=-1,
            )
            for each, target in zip(decisions, targets)
        ]

    @torch.no_grad()
    def compute_targets(self, decisions: Sequence[StoredDecision], policy: Any) -> Tensor:
        """Targets [N] by the Q-network as it is."""
        observations = policy.collate([each.following or each.observation for each in decisions])
        with evaluation_mode(policy):
            next_q, _ = policy.score({name: column.to(policy.device) for name, column in observations.items()})
        done = torch.tensor([each.following is None for each in decisions])
        reward = torch.tensor([each.reward for each in decisions])
        return q_learning_targets(reward, next_q.cpu(), done, self.gamma)

    def state_dict(self) -> dict[str, Any]:
        return {name: [vars(each) for each in stored] for name, stored in self.buffers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.buffers = {name: [StoredDecision(**each) for each in stored] for name, stored in state.items()}


def read_decisions(episode: Episode) -> list[StoredDecision]:
    """Decisions of an episode; the episode's reward is added to its last one."""
    turns = list(episode.turns)
    ends = [False] * (len(turns) - 1) + [True]
    return [
        StoredDecision(
            episode.prompt.key,
            {name: column.cpu() for name, column in turn.completion.observation.items()},
            int(turn.completion.action[0]),
            float(turn.reward) + (float(episode.reward) if end else 0.0),
            None if end else turns[number + 1].completion.observation,
        )
        for number, (turn, end) in enumerate(zip(turns, ends))
    ]
