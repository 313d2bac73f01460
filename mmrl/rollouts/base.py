"""Rollout: play the episodes of prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Prompt, Sampling, Sim, Task

if TYPE_CHECKING:
    from mmrl.policies.base import Policy


class Rollout(ABC):
    """Plays episodes. The group number of an episode is its prompt's slot; slots are global over ranks."""

    @classmethod
    def writes(cls) -> frozenset[str]:
        """Columns that its completions carry beyond the collated ones."""
        return frozenset()

    samples: bool = True  # whether the policy acts; False where episodes come from demonstrations or a file
    imitates_answers: bool = False  # whether episodes are the task's own answers

    @abstractmethod
    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        """Play the episodes `ctx.sample_indices(slot)` of every (slot, prompt), in that order."""

    def build_observation(self, prompt: Prompt, policy: Policy) -> Mapping[str, Any]:
        """Return the raw observation that the policy reads first in an episode of a prompt."""
        return prompt.observation

    def max_age(self, sampling: Sampling) -> int:
        """Return how many iterations before the last choice of an episode its first one may have been drawn."""
        return 0

    def spare_episodes(self) -> list[Episode]:
        """Return an episode to build a masked row of, if none has ended in the last collection."""
        return []

    def check_task(self, task: Task) -> None:
        """Refuse a task whose prompts lack what the rollout reads. Called before the first rollout."""

    def check_columns(self, task: Task, readers: Mapping[str, str]) -> None:
        """Refuse a task whose rows lack the data of a column that a part reads; called before a model is built.

        Args:
            task: the training problems.
            readers: parts of the run by the column that they read as the rollout writes it.
        """

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Learn from the scored groups of all ranks (light episodes: no turns): every rank then has the same state."""

    def metrics(self) -> dict[str, float]:
        """Metrics of the last collection, the same on all ranks. Collective."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in checkpoints, as tensors and plain values; empty if there is none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""

    def close(self) -> None:
        """Release what it holds, such as environments; it may be called twice, and used again."""


@runtime_checkable
class SimulatorTask(Protocol):
    """A task whose prompts are initial states of a simulator."""

    name: str
    sim: Sim


@runtime_checkable
class ContinuingRollout(Protocol):
    """A rollout whose environments go on from iteration to iteration: a process plays its share without prompts too."""

    num_envs: int  # over all processes

    def share_states(self, states: Sequence[Mapping[str, Any]], rank: int, size: int) -> dict[str, Any]:
        """Return the state of process `rank` of `size` from those of another number of processes."""


def simulator_of(task: Task, rollout: str) -> Sim:
    """The simulator of a task; refuses a task without one, in the name of the rollout that needs it."""
    if not isinstance(task, SimulatorTask):
        raise ValueError(f"{rollout} needs a task with a simulator, but task {task.name!r} has none; use single_turn")
    return task.sim


def text_observation(prompt: Prompt) -> Mapping[str, Any]:
    """Return the observation of a text or VLM prompt."""
    if not prompt.messages:
        raise ValueError(f"prompt {prompt.key!r} has no messages: tasks of simulators are played with rollout=env")
    return prompt.observation


def turn_seed(slot: int, sample_index: int, ctx: Context, turn: int = 0) -> int:
    """Derive the seed of a completion at one turn; the first turn has the seed of a single-turn completion."""
    later = [turn] if turn else []
    return derive_seed(ctx.seed, ctx.purpose, ctx.iteration, slot, sample_index, *later)
