"""Hindsight goals: every recorded transition gets a goal, a state of its own episode or of another one.

Hindsight Experience Replay, 2017, arXiv:1707.01495; the mixture is that of OGBench, 2024, arXiv:2410.20092, appendix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import ConfigError
from mmrl.data.offline.relabelling import RewardedDataset
from mmrl.data.offline.replay_data import OfflineReplayData
from mmrl.data.replay_buffer import FINAL, TERMINATED, ReplayBuffer
from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.distributed import parallel
from mmrl.policies.control.actor import ActorPolicy

register_columns({"actor_goal": Column("[N, G]", "as the state", "the hindsight goal that the actor learns from")})


@dataclass(frozen=True)
class HindsightGoals:
    """Distribution of the goal of a transition in row t of an episode whose last state is in row T.

    Args:
        current: probability of the state of row t itself, which is then reached.
        future: probability of a later state of the episode.
        random: probability of a state of any episode, all equally likely.
        uniform: later states are equally likely; else row min(t + k, T), k geometric with the mean 1 / (1 - gamma).
    """

    current: float = 0.2
    future: float = 0.5
    random: float = 0.3
    uniform: bool = False

    def __post_init__(self) -> None:
        shares = (self.current, self.future, self.random)
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(
                f"HindsightGoals: current={self.current}, future={self.future} and random={self.random} are "
                "probabilities, so they are at least 0 and sum to 1"
            )

    def draw(
        self,
        index: np.ndarray,  # [N] rows of the transitions
        last: np.ndarray,  # [N] row of the last state of each one's episode
        size: int,
        gamma: float,
        rng: np.random.Generator,
    ) -> np.ndarray:  # [N] rows of the goals
        """Draw goals among the `size` stored rows."""
        if self.uniform:
            later = index + 1 + (rng.random(len(index)) * (last - index)).astype(np.int64)
        else:
            later = np.minimum(index + rng.geometric(1 - gamma, len(index)), last)
        anywhere = rng.integers(size, size=len(index))
        kind = rng.random(len(index))
        goals = np.where(kind < self.current + self.future, later, anywhere)
        return np.where(kind < self.current, index, goals)


class HindsightReplayBuffer(ReplayBuffer):
    """Replay buffer of a recording whose samples have hindsight goals, in the columns obs.goal and next.goal.

    The reward of a sample is 0 and its discount 0 where the goal is the state itself; else they are -1 and gamma. So
    the value of a goal is minus the discounted number of decisions to it. A terminal transition has no next state and
    is not sampled.

    Args:
        goals: distribution of the goals.
        actor_goals: distribution of the goals in the column `actor_goal`; None for no such column.
        goal_entries: entries of the state vector that are a goal; None for all.
        capacity: as in `ReplayBuffer`, and so on.
    """

    def __init__(
        self,
        goals: HindsightGoals,
        actor_goals: HindsightGoals | None = None,
        goal_entries: list[int] | None = None,
        capacity: int = 1_000_000,
        batch_size: int = 256,
        gamma: float = 0.99,
        n_steps: int = 1,
        extra_columns: tuple[str, ...] = (),
    ):
        super().__init__(capacity, batch_size, gamma, n_steps, extra_columns)
        if n_steps != 1:
            raise ValueError(f"data.replay.n_steps must be 1 with hindsight goals, got {n_steps}")
        if not gamma < 1:
            raise ValueError(f"data.replay.gamma must be less than 1 with hindsight goals, got {gamma}")
        if goal_entries is not None and (not goal_entries or min(goal_entries) < 0):
            raise ValueError(
                f"data.replay.goal_entries={goal_entries}: a goal needs at least one entry of the state vector, "
                "counted from 0; null takes all"
            )
        self.goals, self.actor_goals, self.goal_entries = goals, actor_goals, goal_entries
        self._rows: tuple[np.ndarray, np.ndarray] | None = None

    def writes(self) -> frozenset[str]:
        return super().writes() | ({"actor_goal"} if self.actor_goals is not None else frozenset())

    def add(self, rows: Batch, final: Batch) -> None:
        if rows and self.num_transitions + rows.rows + self._count_final() + len(final["episode"]) > self.capacity:
            raise ValueError(
                f"data.replay.capacity={self.capacity:,} is too small: hindsight needs whole episodes, each with its "
                "last observation; raise it"
            )
        super().add(rows, final)
        self._rows = None

    def _count_final(self) -> int:
        return self.storage.size - self.num_transitions

    def transitions(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows [M] that have a next state, and the last row [size] of every row's episode.

        Raises:
            ValueError: no row has a next state, or a goal of another episode is asked for and there is none.
        """
        if self._rows is None:
            end = self.storage.columns["end"][: self.storage.size].numpy()
            ends = np.flatnonzero((end == FINAL) | (end == TERMINATED))
            rows = np.flatnonzero((end != FINAL) & (end != TERMINATED))
            if not len(rows):
                raise ValueError(
                    f"data.replay: none of {len(end)} recorded rows has a next observation, which hindsight goals "
                    "need; record episodes of more than one step"
                )
            random = max(each.random for each in (self.goals, self.actor_goals or self.goals))
            if len(ends) < 2 and random:
                raise ValueError(
                    f"data.replay: the recording has one episode, and HindsightGoals.random={random} asks for states "
                    "of others; record more, or set random=0 and future=1"
                )
            self._rows = rows, ends[np.searchsorted(ends, np.arange(len(end)))]
        return self._rows

    def draw(self, count: int, rng: np.random.Generator) -> Tensor:
        """Draw rows that have a next state, uniformly with replacement: [count]."""
        rows = self.transitions()[0]
        return torch.from_numpy(rows[rng.integers(len(rows), size=count)])

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        index = self.draw(updates * self.batch_size, rng)
        columns = self.read(index)
        row = self._draw_goals(self.goals, index, rng)
        reached = row == index
        goal = self._goals_in(row)
        columns |= {"obs.goal": goal, "next.goal": goal}
        columns |= {"reward": -(~reached).float(), "discount": self.gamma * (~reached).float()}
        if self.actor_goals is not None:
            columns["actor_goal"] = self._goals_in(self._draw_goals(self.actor_goals, index, rng))
        return Batch({name: column.unflatten(0, (updates, self.batch_size)) for name, column in columns.items()})

    def _draw_goals(self, goals: HindsightGoals, index: Tensor, rng: np.random.Generator) -> Tensor:
        numbers, size = index.numpy(), self.storage.size
        return torch.from_numpy(goals.draw(numbers, self.transitions()[1][numbers], size, self.gamma, rng))

    def _goals_in(self, row: Tensor) -> Tensor:
        states = self.storage.columns.get("obs.state")
        if states is None:
            raise ValueError("data.replay: hindsight goals are states, but the policy reads no state vector")
        if self.goal_entries is None:
            return states[row]
        if max(self.goal_entries) >= states.shape[1]:
            raise ValueError(
                f"data.replay.goal_entries={self.goal_entries}: the state vector has entries 0 to {states.shape[1] - 1}"
            )
        return states[row][:, self.goal_entries]


class GoalReplayData(OfflineReplayData):
    """Learn to reach goals from a recording, which needs no rewards: where it has none they are 0."""

    def setup(self, stage: str) -> None:
        if not self._recorded or self.collect_from is not None:
            raise ConfigError(
                f"data.path={self.path}, data.log={self.log}, data.collect_from={self.collect_from}: goal-conditioned "
                "methods learn from a recording; name its file, and set data.collect_from=null"
            )
        if parallel.rank_and_size()[1] > 1:
            raise ConfigError("trainer.devices: hindsight goals are drawn by one process; set trainer.devices=1")
        super().setup(stage)
        policy, entries = self.trainer.lightning_module.policy, self.replay.goal_entries
        dims = getattr(policy, "goal_dims", None)
        given = policy.encoder.observation_dims if entries is None else len(entries)
        if dims is not None and dims != given:
            raise ConfigError(
                f"policy.goal_dims={dims}, and goals have {given} numbers (data.replay.goal_entries={entries}); set "
                f"policy.goal_dims={given}, or name {dims} entries of the state"
            )

    def _stays_on_disk(self, dataset: Dataset, policy: ActorPolicy) -> bool:
        if self.on_disk:
            raise ConfigError(
                "data.on_disk=true: hindsight goals are drawn from all states of a recording, which are in memory; set "
                "data.on_disk=false"
            )
        return False

    def _open_recording(self) -> Dataset:
        return RewardlessDataset(super()._open_recording())


class RewardlessDataset(RewardedDataset):
    """A recording whose episodes have the reward 0 where they have none."""

    def __init__(self, dataset: Dataset):
        super().__init__(dataset, ())

    def read(self, number: int) -> OfflineEpisode:
        episode = self.dataset.read(number)
        return episode if episode.rewards is not None else replace(episode, rewards=np.zeros(len(episode), np.float32))
