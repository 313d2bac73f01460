"""Segments of episodes: pieces that end where the episode or the iteration ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.transitions import ActionBatch, TransitionTable
from mmrl.core.types import Completion, Context, Ended, Episode, Prompt
from mmrl.distributed import parallel
from mmrl.rollouts.env.autoreset import EnvStep, EpisodeEnd
from mmrl.rollouts.env.episodic import mask_unplayed
from mmrl.rollouts.env.reward_scale import CLIP


@dataclass
class EnvTrajectory:
    """Trajectory of one environment over segments and iterations: its return, length and open segment."""

    number: int = 0  # over all ranks
    num_episodes: int = 0  # that ended
    episode_return: float = 0.0
    episode_length: int = 0
    discounted_return: float = 0.0  # of the rewards so far, for their scale
    rows: list[int] = field(default_factory=list)  # of the open segment, in the table of this iteration

    def end_episode(self) -> None:
        self.num_episodes += 1
        self.episode_return, self.episode_length, self.discounted_return = 0.0, 0, 0.0


class SegmentBuilder:
    """Build the segments of one iteration from the environment steps.

    Args:
        name: of the task.
        wanted: decisions to learn from; later ones only tell what follows.
        num_envs: environments over all processes.
    """

    def __init__(self, name: str, wanted: int, num_envs: int):
        self.name, self.wanted, self.num_envs = name, wanted, num_envs
        self.rows = self._steps = 0
        self._table = TransitionTable()
        self._segments: list[tuple[Episode, list[int]]] = []
        self._following: list[tuple[Episode, dict[str, Any]]] = []  # unfinished ones and what was seen after them

    def add(
        self, trajectories: Sequence[EnvTrajectory], acting: Sequence[int], acts: Sequence[Completion], step: EnvStep
    ) -> None:
        """Add one decision of each acting environment: a row, or the end of the segment before it."""
        self._steps += 1
        if step.executed is not None:
            _mask_unplayed(acts, step.executed)
        rows, ends = self._table.add(acts, step.rewards), step.ends
        for place, (w, row, reward) in enumerate(zip(acting, rows, step.rewards)):
            trajectory, end = trajectories[w], ends.get(w)
            failed = end is not None and end.error is not None
            counted = not failed and self.rows < self.wanted
            if counted:
                trajectory.rows.append(row)
                self.rows += 1
            else:
                self._stop(trajectory, acts[place], end)
            if not failed:
                trajectory.episode_return += reward
                trajectory.episode_length += 1
            if counted and end is not None:
                self._end(trajectory, end)

    def _stop(self, trajectory: EnvTrajectory, completion: Completion, end: EpisodeEnd | None) -> None:
        """The open segment ends before the decision that has just been taken."""
        failed = end is not None and end.error is not None
        segment = self._close(trajectory, "error" if failed else "cut")
        if segment is not None:
            segment.following = completion.observation
            segment.bootstrap_value = 0.0 if completion.value is None else float(completion.value.flatten()[0])
        if segment is not None and failed:
            segment.info["error"] = end.error  # type: ignore[union-attr]

    def _end(self, trajectory: EnvTrajectory, end: EpisodeEnd) -> None:
        segment = self._close(trajectory, "done" if end.terminated else "time")
        totals = {"episode_return": trajectory.episode_return, "episode_length": float(trajectory.episode_length)}
        segment.info["scores"] = {**end.scores, **totals}  # type: ignore[union-attr]
        if not end.terminated:
            self._following.append((segment, end.following))  # type: ignore[arg-type]

    def cut(self, trajectory: EnvTrajectory, observation: dict[str, Any]) -> None:
        """End the open segment, if there is one, because the iteration ends; `observation` follows it."""
        segment = self._close(trajectory, "cut", after=1)
        if segment is not None:
            self._following.append((segment, observation))

    def scale_rewards(self, scale: float) -> None:
        """Multiply the rewards of all rows by a number, and clip them."""
        self._table.scale_rewards(scale, CLIP)

    def finish(self, ctx: Context) -> list[Episode]:
        """Return all segments, with a bootstrap value where they did not terminate. Collective.

        Those of all processes are numbered by the step after which they end and then by environment, as in one process.
        """
        if self._following:
            values = ctx.engine.predict_values([observation for _, observation in self._following])
            for (segment, observation), value in zip(self._following, values):
                segment.following, segment.bootstrap_value = ctx.policy.encode(observation), value
        numbers = {key: i for i, key in enumerate(sorted(parallel.gather([each.group for each, _ in self._segments])))}
        for segment, rows in self._segments:
            segment.group, segment.turns = numbers[segment.group], self._table.turns(rows)
        return [segment for segment, _ in self._segments]

    def _close(self, trajectory: EnvTrajectory, ended: Ended, after: int = 0) -> Episode | None:
        if not trajectory.rows:
            return None
        group = (self._steps + after) * self.num_envs + trajectory.number
        segment = Episode(Prompt(key=f"{self.name}/env/{trajectory.number}"), group, sample_index=0, ended=ended)
        self._segments.append((segment, trajectory.rows))
        trajectory.rows = []
        return segment


def _mask_unplayed(acts: Sequence[Completion], executed: Sequence[int]) -> None:
    for place, steps in enumerate(executed):
        completion = acts[place]
        mask_unplayed(completion, steps)
        if isinstance(acts, ActionBatch):  # whose completions are copies
            acts.columns["action_mask"][place] = completion.action_mask
