"""The control loop of a robot: one command per control step, chunks asked ahead, a human who takes over."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmrl.api.robots.chunks import ChunkQueue
from mmrl.api.robots.clock import Clock
from mmrl.api.robots.inference import ChunkQuery, ChunkReply, Inference
from mmrl.api.robots.robot import Robot, RobotFeedback
from mmrl.api.robots.timing import TimingReport
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import derive_seed
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.datasets.recording import build_episode

Takeover = Callable[[Mapping[str, Any]], np.ndarray | None]
"""A device by which a human takes over: the observation to the human's action [A], or None while the policy acts."""

DELAYS = 10
"""Last delays, of which the largest is expected of the next answer; b of the paper's algorithm 1."""


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode with one row per control step, its counts, and whether Ctrl-C ended it."""

    episode: OfflineEpisode
    timing: TimingReport
    interrupted: bool


@dataclass
class _Progress:
    """State of the present episode."""

    seed: int
    timing: TimingReport
    queue: ChunkQueue
    delays: deque[int]
    steps: list[tuple[Mapping[str, Any], np.ndarray, np.ndarray, float]] = field(default_factory=list)
    interventions: list[bool] = field(default_factory=list)
    policy_from: int = 0  # control step since which no human acted: older observations lead to stale chunks


class RealTimePlayer:
    """Play a policy's chunks on a robot at a fixed rate.

    Control step k begins k periods after the start. In each step the robot is read, an answer of the policy that has
    come is joined to the actions to come (`ChunkQueue`), the next chunk is asked for where it is time, and one command
    is given. Inference runs beside this loop, which never waits for it but for the first chunk of an episode. A step
    without an action holds the robot. After a late command the following steps begin later by as much; none is left
    out.

    A human who gives an action has control in that step: the present chunk is dropped, and no chunk is asked for until
    the device gives None again. Then the robot holds until a chunk from a new observation is there.

    Source: Black et al., "Real-Time Execution of Action Chunking Flow Policies", 2025, algorithm 1, arXiv:2506.07339:
    the controller, and d as the largest of the last delays. What a policy does with the old chunk is its own matter
    (`GuidedPolicy`); `blend` averages actions, which is none of the paper.

    Args:
        robot: that is played.
        inference: of the policy.
        clock: of the control steps.
        fps: control steps per second; None for the robot's.
        execute: s_min, least control steps from the observation of one chunk to that of the next; None for half of the
            chunk.
        blend: control steps over which an old chunk fades into a new one.
        takeover: the human's device.
        max_steps: control steps of an episode.
    """

    def __init__(
        self,
        robot: Robot,
        inference: Inference,
        clock: Clock,
        fps: float | None = None,
        execute: int | None = None,
        blend: int = 0,
        takeover: Takeover | None = None,
        max_steps: int = 1000,
    ):
        self.robot, self.inference, self.clock, self.takeover = robot, inference, clock, takeover
        self.fps = robot.fps if fps is None else fps
        check_positive("robot", fps=self.fps)
        check_at_least(1, "robot", max_steps=max_steps, **({} if execute is None else {"execute": execute}))
        check_at_least(0, "robot", blend=blend)
        self.execute, self.blend, self.max_steps = execute, blend, max_steps
        self._chunk = 1  # H, control steps of the last chunk

    def play(self, seed: int = 0) -> PlayedEpisode:
        """Play one episode.

        Args:
            seed: of the robot's initial state and of the policy's draws.
        """
        self.robot.begin(seed)
        progress = _Progress(seed, TimingReport(1 / self.fps), ChunkQueue(self.blend), deque(maxlen=DELAYS))
        feedback, interrupted = RobotFeedback(), False
        try:
            # the first chunk is waited for; the control steps begin when it is there
            self._ask(progress, self.robot.read(), 0)
            self._join(progress, self.inference.wait(), 0)
            progress.delays[0] = math.ceil(progress.timing.inference_s[0] * self.fps)  # as if the robot had moved
            start = self.clock.now()
            for step in range(self.max_steps):
                begin = start + step / self.fps
                self.clock.sleep_until(begin)
                feedback = self._play_step(progress, step)
                seconds = self.clock.now() - begin
                if progress.timing.note_command(seconds):
                    start += seconds - 1 / self.fps
                if feedback.over:
                    break
        except KeyboardInterrupt:
            interrupted = True
            if not progress.steps:
                raise
        finally:
            if self.inference.busy:
                self.inference.wait()  # an answer of this episode must not reach the next one
        return PlayedEpisode(self._build_episode(progress, feedback), progress.timing, interrupted)

    def _play_step(self, progress: _Progress, step: int) -> RobotFeedback:
        """Read the robot, give one command, and note both."""
        observation = self.robot.read()
        if (reply := self.inference.poll()) is not None:
            self._join(progress, reply, step)
        human = None if self.takeover is None else self.takeover(observation)
        if human is not None:
            progress.queue.clear()
            progress.policy_from = step + 1
            progress.timing.takeovers += not (progress.interventions and progress.interventions[-1])
        elif not self.inference.busy and self._is_time(progress, step):
            self._ask(progress, observation, step)
        action = progress.queue.action(step) if human is None else human
        if action is None:
            progress.timing.held += 1
            action = self.robot.hold()
        action = self._check_action(action, "the takeover" if human is not None else "the policy", step)
        self.robot.write(action)
        feedback = self.robot.feedback()
        progress.timing.interventions += human is not None
        progress.interventions.append(human is not None)
        progress.steps.append((observation, action, action, feedback.reward or 0.0))
        return feedback

    def _is_time(self, progress: _Progress, step: int) -> bool:
        """Whether the next chunk is to be asked for: `execute` steps after the observation of the present one."""
        if progress.queue.origin is None:
            return True
        return step - progress.queue.origin >= (self.execute or max(self._chunk // 2, 1))

    def _ask(self, progress: _Progress, observation: Mapping[str, Any], step: int) -> None:
        origin = progress.queue.origin
        previous = None if origin is None else progress.queue.remaining(step).copy()
        delay, draws = max(progress.delays, default=0), derive_seed("robot", progress.seed, step)
        executed = 0 if origin is None else step - origin
        self.inference.ask(ChunkQuery(observation, step, draws, previous, executed, delay))

    def _join(self, progress: _Progress, reply: ChunkReply, step: int) -> None:
        """Add a chunk to the actions to come, unless a human has acted since its observation."""
        progress.timing.inference_s.append(reply.seconds)
        progress.delays.append(step - reply.query.step)
        chunk = np.asarray(reply.chunk, np.float32)
        if chunk.ndim != 2 or chunk.shape[1] != self.robot.action_dims:
            raise ValueError(
                f"the policy's chunk is {list(chunk.shape)}, the robot takes {self.robot.action_dims} numbers per "
                "control step; give the policy that was trained on this robot's data, or set action_dims of the robot"
            )
        self._chunk = len(chunk)
        if reply.query.step < progress.policy_from:
            progress.timing.stale_chunks += 1
            return
        past = progress.queue.join(chunk, reply.query.step, step)
        if past == len(chunk):
            progress.timing.stale_chunks += 1
            return
        progress.timing.chunks += 1
        progress.timing.past_steps += past

    def _check_action(self, action: np.ndarray, source: str, step: int) -> np.ndarray:
        action = np.asarray(action, np.float32)
        if action.shape != (self.robot.action_dims,) or not np.isfinite(action).all():
            raise ValueError(
                f"control step {step}: the action of {source} is {action.tolist()}, but the robot takes "
                f"{self.robot.action_dims} finite numbers; nothing was written"
            )
        return action

    def _build_episode(self, progress: _Progress, feedback: RobotFeedback) -> OfflineEpisode:
        """The rows of the episode; rewards where the robot gives them."""
        scores = {} if feedback.success is None else {"success": float(feedback.success)}
        episode = build_episode(progress.seed, progress.steps, (feedback.terminated, feedback.truncated, False, scores))
        rewards = None if feedback.reward is None else episode.rewards
        return replace(episode, rewards=rewards, interventions=np.array(progress.interventions))
