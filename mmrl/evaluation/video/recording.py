"""Record videos of evaluation episodes: the rendered frames of every control step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from mmrl.core.types import Episode, Sim

FPS = 20.0  # default if the environment has no metadata["render_fps"]


@dataclass
class EpisodeVideo:
    """Frames of one episode from reset to end, uint8 [size, size, 3] each."""

    frames: list[np.ndarray] = field(default_factory=list)
    instruction: str = ""


class RecordVideo(VectorWrapper):
    """Vector-environment wrapper that records the frames of the first environments.

    Frames come from `env.render(i, size)`. An environment with several control steps per decision may have an
    attribute `step_callback`, a function that it calls after every control step with the indices of the environments
    that moved. Without it there is one frame per decision.
    """

    def __init__(self, env: VectorEnv, videos: list[EpisodeVideo], size: int):
        super().__init__(env)
        self.videos, self.size = videos, size
        self._over = np.zeros(env.num_envs, bool)
        self._has_callback = hasattr(env, "step_callback")
        if self._has_callback:
            env.step_callback = self._record_frames  # type: ignore[attr-defined]

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(**arguments)
        self._over[:] = False
        texts = observation.get("instruction") if isinstance(observation, dict) else None
        for i, video in enumerate(self.videos):
            video.frames.clear()
            video.instruction = str(texts[i]) if texts is not None else ""
        self._record_frames(np.arange(self.num_envs))
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        live = np.flatnonzero(~self._over)
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        if not self._has_callback:
            self._record_frames(live)
        self._over |= np.asarray(terminated) | np.asarray(truncated)
        return observation, rewards, terminated, truncated, infos

    def _record_frames(self, envs: Sequence[int] | np.ndarray) -> None:
        for i in envs:
            if i < len(self.videos):
                self.videos[i].frames.append(np.asarray(self.env.render(int(i), self.size)))  # type: ignore[call-arg]


def enable_drawing(sim: Sim) -> Sim:
    """The simulator with environments that draw images of themselves, where it has such a form."""
    change = getattr(sim, "enable_drawing", None)
    return sim if change is None else change()


class VideoSim(Sim):
    """Simulator whose environments record videos of the first `count` episodes."""

    def __init__(self, sim: Sim, count: int, size: int):
        self.sim, self.name, self.size = sim, sim.name, size
        self.videos = [EpisodeVideo() for _ in range(count)]
        self.fps = FPS
        self._made: list[VectorEnv] = []

    def make(self, num_envs: int) -> VectorEnv:
        env = enable_drawing(self.sim).make(num_envs)
        self.fps = float(env.metadata.get("render_fps", FPS))
        self._made.append(env)
        return RecordVideo(env, self.videos, self.size)

    def close(self) -> None:
        """Close all environments."""
        while self._made:
            self._made.pop().close()

    def contract(self) -> dict[str, Any]:
        return self.sim.contract()

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def stepwise(self) -> VideoSim:
        """This simulator, with one control step per decision from now on."""
        self.sim = self.sim.stepwise()
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not vars(self):  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self.sim, name)  # expert, stored_states and other methods


@dataclass(frozen=True)
class EpisodeVideos:
    """Videos of recorded episodes in the order of the held-out split.

    Args:
        videos: frames of each episode.
        episodes: how each ended.
        fps: frames per second at the simulator's own speed.
    """

    videos: list[EpisodeVideo]
    episodes: list[Episode]
    fps: float

    def select(self, slots: Sequence[int]) -> EpisodeVideos:
        """Select some of them by the slots of their episodes, in the order given."""
        place = {episode.group: i for i, episode in enumerate(self.episodes)}
        indices = [place[slot] for slot in slots if slot in place]
        return EpisodeVideos([self.videos[i] for i in indices], [self.episodes[i] for i in indices], self.fps)


def record_videos(
    trainer: Any, learner: Any, data: Any, decode: str, slots: Sequence[int], size: int = 192
) -> EpisodeVideos:
    """Record videos of some held-out initial states under one decode, with the draws of `data.evaluation`.

    Args:
        trainer: of Lightning; it puts the policy on its device.
        learner: with the weights to show.
        data: its task has a simulator whose environment offers `render(i, size)`.
        decode: a name in `data.evaluation.sampling`.
        slots: which of the states that the evaluation plays, counted from 0.
        size: pixels a side.
    """
    evaluated, sim = prepare_recording(data, decode, slots, size)
    trainer.validate(learner, evaluated, verbose=False)
    sim.close()
    return EpisodeVideos(sim.videos, evaluated.evaluation.latest[decode], sim.fps)


def prepare_recording(data: Any, decode: str, slots: Sequence[int], size: int) -> tuple[Any, VideoSim]:
    """Copy a data module so that its evaluation plays these initial states once, in a simulator that records them.

    It has no evaluators: they need all states and samples, as pass@k does, and the recording reads episodes alone.
    """
    evaluated = copy.copy(data)
    evaluated.evaluation = copy.copy(data.evaluation)
    evaluated.evaluation.rollout = copy.deepcopy(data.evaluation.rollout)
    num_states = len(data.evaluation.indices(data.evaluation.select_problems(data.task)))
    # all episodes in one batch, so that environment i has the i-th initial state
    most = getattr(data.evaluation.rollout, "max_envs", num_states)
    evaluated.evaluation.only = [slot for slot in slots if slot < num_states][:most]
    sim = VideoSim(data.task.sim, len(evaluated.evaluation.only), size)
    evaluated.task = replace(data.task, sim=sim)
    evaluated.evaluation.num_samples, evaluated.evaluation.evaluators = 1, {}
    evaluated.evaluation.sampling = {decode: data.evaluation.sampling[decode]}
    return evaluated, sim
