"""Pieces of the lives of simulated worlds, as episodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mmrl.rollouts.continued import Transition
from mmrl.rollouts.env import mask_unplayed
from mmrl.types import Completion, Context, Ended, Episode, Prompt, Request, Turn


@dataclass
class World:
    """One world's life so far, over segments and iterations."""

    number: int = 0  # over all ranks
    lives: int = 0  # that ended
    life_return: float = 0.0
    life_length: int = 0
    draws: int = 0  # decisions of this iteration, learnt from or not
    turns: list[Turn] = field(default_factory=list)  # of the open segment

    def end_life(self) -> None:
        self.lives += 1
        self.life_return, self.life_length = 0.0, 0


class Harvest:
    """The segments of one iteration while they grow."""

    def __init__(self, name: str):
        self.name = name
        self.rows = 0
        self._segments: list[Episode] = []
        self._following: list[tuple[Episode, dict[str, Any]]] = []  # unfinished ones and what was seen after them

    def add(self, world: World, completion: Completion, transition: Transition, learnt: bool) -> None:
        """One decision: a turn, or, when it is not learnt from, the reason why the segment stops before it."""
        if not learnt:
            segment = self._close(world, "cut" if transition.error is None else "error")
            if segment is not None:
                _follow(segment, completion)
            if segment is not None and transition.error is not None:
                segment.info["error"] = transition.error
        else:
            if transition.executed is not None:
                mask_unplayed(completion, transition.executed)
            world.turns.append(Turn(completion, transition.reward))
            self.rows += 1
        if transition.error is not None:
            return
        world.life_return += transition.reward
        world.life_length += 1
        if learnt and transition.following is not None:
            self._end(world, transition)

    def _end(self, world: World, transition: Transition) -> None:
        segment = self._close(world, "done" if transition.terminated else "time")
        life = {"episode_return": world.life_return, "episode_length": float(world.life_length)}
        segment.info["scores"] = {**(transition.scores or {}), **life}
        if not transition.terminated:
            self._following.append((segment, transition.following))

    def cut(self, world: World, observation: dict[str, Any]) -> None:
        """End the open segment, if there is one, because the iteration ends; its world has come to `observation`."""
        segment = self._close(world, "cut")
        if segment is not None:
            self._following.append((segment, observation))

    def finish(self, ctx: Context, first_group: int) -> list[Episode]:
        """All segments, numbered, with the value of what follows those that did not terminate."""
        requests = [Request(observation, 0) for _, observation in self._following]
        if requests:
            for (segment, _), completion in zip(self._following, ctx.engine.sample(requests, ctx.sampling)):
                _follow(segment, completion)
        for group, segment in enumerate(self._segments, start=first_group):
            segment.group = group
        return self._segments

    def _close(self, world: World, ended: Ended) -> Episode | None:
        if not world.turns:
            return None
        prompt = Prompt(key=f"{self.name}/world/{world.number}")
        segment = Episode(prompt, group=0, attempt=0, turns=world.turns, ended=ended)
        world.turns = []
        self._segments.append(segment)
        return segment


def _follow(segment: Episode, completion: Completion) -> None:
    """What comes after a segment that did not terminate; its value is 0 where the policy predicts none."""
    segment.following = completion.observation
    if completion.value is not None:
        segment.bootstrap = float(completion.value.flatten()[0])
