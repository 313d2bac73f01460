"""Episodes of a simulator with the pictures of every control step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from mmrl.types import Episode, Sim

FPS = 20.0  # where the environment does not state metadata["render_fps"]


@dataclass
class Film:
    """The pictures of one world from reset to end, uint8 [size, size, 3] each."""

    frames: list[np.ndarray] = field(default_factory=list)
    instruction: str = ""


class FilmedEnv(VectorWrapper):
    """A vector environment that keeps pictures of its first worlds while it is played.

    Pictures come from `env.render(i, size)`. An environment that plays several control steps per decision may offer
    an attribute `watch`: it is given a function, to be called after every control step with the numbers of the worlds
    that moved. Without it there is one picture per decision.
    """

    def __init__(self, env: VectorEnv, films: list[Film], size: int):
        super().__init__(env)
        self.films, self.size = films, size
        self._over = np.zeros(env.num_envs, bool)
        self._watched = hasattr(env, "watch")
        if self._watched:
            env.watch = self._take  # type: ignore[attr-defined]

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(**given)
        self._over[:] = False
        texts = observation.get("instruction") if isinstance(observation, dict) else None
        for i, film in enumerate(self.films):
            film.frames.clear()
            film.instruction = str(texts[i]) if texts is not None else ""
        self._take(np.arange(self.num_envs))
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        played = np.flatnonzero(~self._over)
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        if not self._watched:
            self._take(played)
        self._over |= np.asarray(terminated) | np.asarray(truncated)
        return observation, rewards, terminated, truncated, infos

    def _take(self, worlds: Sequence[int] | np.ndarray) -> None:
        for i in worlds:
            if i < len(self.films):
                self.films[i].frames.append(np.asarray(self.env.render(int(i), self.size)))  # type: ignore[call-arg]


class Filmed(Sim):
    """A simulator whose environments keep pictures of the first `count` worlds."""

    def __init__(self, sim: Sim, count: int, size: int):
        self.sim, self.name, self.size = sim, sim.name, size
        self.films = [Film() for _ in range(count)]
        self.fps = FPS
        self._made: list[VectorEnv] = []

    def make(self, num_envs: int) -> VectorEnv:
        env = self.sim.make(num_envs)
        self.fps = float(env.metadata.get("render_fps", FPS))
        self._made.append(env)
        return FilmedEnv(env, self.films, self.size)

    def close(self) -> None:
        """Give every environment that was made back."""
        while self._made:
            self._made.pop().close()

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()


@dataclass(frozen=True)
class Shown:
    """Filmed episodes in the order of the held-out split.

    Args:
        films: pictures.
        episodes: how each ended.
        fps: pictures per second at the simulator's own speed.
    """

    films: list[Film]
    episodes: list[Episode]
    fps: float

    def only(self, slots: Sequence[int]) -> Shown:
        """Some of them, by the slots of their episodes, in the order given."""
        place = {episode.group: i for i, episode in enumerate(self.episodes)}
        chosen = [place[slot] for slot in slots if slot in place]
        return Shown([self.films[i] for i in chosen], [self.episodes[i] for i in chosen], self.fps)


def film(trainer: Any, learner: Any, data: Any, decode: str, slots: Sequence[int], size: int = 192) -> Shown:
    """Play some held-out initial states under one decode, with the draws of `data.evaluation`, and film them.

    Args:
        trainer: of Lightning; it puts the policy on its device.
        learner: with the weights to show.
        data: its task has a simulator whose environment offers `render(i, size)`.
        decode: a name in `data.evaluation.sampling`.
        slots: which of the states that the evaluation plays, counted from 0.
        size: pixels a side.
    """
    shown = copy.copy(data)
    shown.evaluation = copy.copy(data.evaluation)
    shown.evaluation.rollout = copy.deepcopy(data.evaluation.rollout)
    there = len(data.evaluation.indices(data.task.on(data.evaluation.split)))
    # one wave of worlds, so that world i is the i-th state
    most = getattr(data.evaluation.rollout, "max_envs", there)
    shown.evaluation.only = [slot for slot in slots if slot < there][:most]
    sim = Filmed(data.task.sim, len(shown.evaluation.only), size)
    shown.task = replace(data.task, sim=sim)
    shown.evaluation.num_samples = 1
    shown.evaluation.sampling = {decode: data.evaluation.sampling[decode]}
    trainer.validate(learner, shown, verbose=False)
    sim.close()
    return Shown(sim.films, shown.evaluation.latest[decode], sim.fps)
