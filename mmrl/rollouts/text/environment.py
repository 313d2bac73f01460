"""Rollout of text environments: a row for every turn, and episodes at different turns in one batch."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mmrl.core.errors import check_fraction, is_user_error
from mmrl.core.function_path import format_error
from mmrl.core.rng import derive_seed
from mmrl.core.text_environment import EnvironmentTask, TextEnvironment, TextStep, environment_task
from mmrl.core.types import Completion, Context, Episode, Prompt, Request
from mmrl.rewards.extract import build_extractor
from mmrl.rollouts.base import Rollout, turn_seed
from mmrl.rollouts.text.environment_episode import UNPARSABLE, EnvironmentEpisode
from mmrl.tools.threads import PendingCall, ThreadExecutor

log = logging.getLogger(__name__)


@dataclass(eq=False)
class RunningEpisode(EnvironmentEpisode):
    """An episode with the call of its environment that it waits for."""

    first_id: Hashable = None  # the same for the first turns of a prompt, whose observations are equal
    pending: PendingCall | None = None


class EnvironmentRollout(Rollout):
    """Play episodes of text environments: every turn is a row, whose reward is that of its action.

    The observation of a turn is the prompt's messages, the last `history` turns and the new observation. The action is
    what the extractor finds in the completion. Environments run in threads; each turn of the running episodes is one
    batch of the engine. Episodes with the same `info["task"]` are played one after another. An environment that raises
    or hangs ends its episode as an error, which is counted and not trained on.

    Args:
        history: earlier turns in the observation of a turn: their texts and actions.
        image_history: of those, turns whose images are shown too.
        extract: how the action is found in a completion: text, tags, boxed, json and so on, or
            {name: {parameter: value}}.
        message: observation after a completion without an action, which costs a turn; None ends the episode instead.
        gamma: discount factor per turn of the score `return`; the rewards of turns are not discounted.
        max_concurrent: running episodes, each with an environment of its own; the next one starts when one ends.
        threads: environments that run at the same time.
        timeout_s: seconds that a reset or a step may take.
        batch_timeout_s: seconds that the next batch waits for slow environments. None waits for all: the batches, and
            so the last bits of their log-probs, then do not depend on how fast an environment is.
        max_failures: episodes that end by a failure of the environment before the run stops with an error.
    """

    def __init__(
        self,
        history: int = 0,
        image_history: int = 0,
        extract: str | dict[str, Any] = "text",
        message: str | None = "\nNo action found.\n>",
        gamma: float = 1.0,
        max_concurrent: int = 64,
        threads: int = 16,
        timeout_s: float = 30.0,
        batch_timeout_s: float | None = None,
        max_failures: int = 64,
    ):
        for name, value, least in (("history", history, 0), ("image_history", image_history, 0),
                                   ("max_concurrent", max_concurrent, 1), ("threads", threads, 1)):  # fmt: skip
            if value < least:
                raise ValueError(f"rollout.{name} must be at least {least}, got {value}")
        if image_history > history:
            raise ValueError(f"rollout.image_history={image_history} is more than rollout.history={history}")
        check_fraction("rollout", gamma=gamma)
        self.history, self.image_history, self.gamma = history, image_history, gamma
        self.extractor = build_extractor(extract, "rollout.extract")
        self.message = message
        self.max_concurrent, self.timeout_s, self.batch_timeout_s = max_concurrent, timeout_s, batch_timeout_s
        self.max_failures, self._failures = max_failures, 0
        self._threads = ThreadExecutor("environment", max_failures, threads)
        self._idle: list[TextEnvironment] = []
        self._made_for: EnvironmentTask | None = None

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        task = self._environment_task(ctx)
        plays = [self._play(slot, prompt, i, task, ctx) for slot, prompt in prompts for i in ctx.sample_indices(slot)]
        # what an environment keeps open, such as the page of a browser, serves the next episode of its kind
        waiting = deque(sorted(plays, key=lambda play: str(play.episode.prompt.info.get("task", ""))))
        running, ended = list[RunningEpisode](), 0
        while waiting or running:
            while waiting and len(running) < self.max_concurrent:
                running.append(waiting.popleft())
                self._start(running[-1], task, ctx)
            self._threads.wait([play.pending for play in running if play.pending], self.batch_timeout_s)
            ready = [play for play in running if play.pending is not None and play.pending.is_done()]
            for play in ready:
                self._read(play, task)
            self._act([play for play in ready if not play.over], task, ctx)
            ended += sum(play.over for play in running)
            running = [play for play in running if not play.over]
            ctx.progress("rollout", ended, len(plays))
        return [play.episode for play in plays]

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        """The next turn of each."""
        requests = []
        for play in ready:
            turn = len(play.actions)
            seed = turn_seed(play.episode.group, play.episode.sample_index, ctx, turn)
            raw = play.observation(self.history, self.image_history)
            requests.append(Request(raw, seed, prompt_id=None if turn else play.first_id))
        return ctx.engine.sample(requests, ctx.sampling)

    def _play(
        self, slot: int, prompt: Prompt, sample_index: int, task: EnvironmentTask, ctx: Context
    ) -> RunningEpisode:
        first_id = (slot, ctx.sample_indices(slot).start)  # a later collection of the prompt reads it again
        return RunningEpisode(Episode(prompt, slot, sample_index), task.max_turns, self.gamma, first_id=first_id)

    def _start(self, play: RunningEpisode, task: EnvironmentTask, ctx: Context) -> None:
        """Give the episode an environment and reset it in a thread."""
        play.environment = self._idle.pop() if self._idle else None
        episode = play.episode
        seed = derive_seed("environment", ctx.seed, ctx.purpose, ctx.iteration, episode.group, episode.sample_index)

        def reset() -> TextStep:
            if play.environment is None:
                play.environment = task.make_environment()
            return play.environment.reset(episode.prompt, seed)

        play.pending = self._threads.start(task.name, reset, self.timeout_s)

    def _read(self, play: RunningEpisode, task: EnvironmentTask) -> None:
        """Read the step that the environment returned, or end the episode by its failure."""
        assert play.pending is not None
        step = self._threads.finish(play.pending)
        if isinstance(step, TextStep):
            play.read(step)
            if play.over and play.environment is not None:
                self._idle.append(play.environment)
            return
        # an error in the user's environment has the line of their code
        turn, plain = len(play.actions), f"{type(step).__name__}: {step}"
        reason = plain if is_user_error(step) else format_error(step, "")
        why = f"environment of {play.episode.prompt.key!r} failed after {turn} actions with {reason}"
        play.end("error", why)
        self._failures += 1
        if self._failures > self.max_failures:
            raise RuntimeError(
                f"{self._failures} episodes ended by a failure of their environment, more than "
                f"rollout.max_failures={self.max_failures}; the last one: {why}"
            )
        log.warning("%s; counted as rollout/errors", why)
        if play.environment is not None and not isinstance(step, TimeoutError):  # a call that hangs still uses it
            self._threads.start(task.name, play.environment.close, self.timeout_s)

    def _act(self, ready: Sequence[RunningEpisode], task: EnvironmentTask, ctx: Context) -> None:
        """Sample one turn of each in one batch, and start the steps of their environments."""
        for play, done in zip(ready, self.sample(ready, ctx) if ready else []):
            assert play.environment is not None
            action = None if done.ended == "error" else self.extractor(str(done.output))
            play.write(done, str(done.output) if action is None else self.extractor.write(action))
            if done.ended == "error":
                play.end("error", "the engine gave no completion for a turn")
                self._idle.append(play.environment)
            elif action is not None:
                play.pending = self._threads.start(task.name, partial(play.environment.step, action), self.timeout_s)
            else:
                play.counts[UNPARSABLE] += 1
                step = replace(play.steps[-1], text=self.message or "", images=(), reward=0.0, valid=True)
                step = replace(step, terminated=self.message is None)
                play.pending = PendingCall(task.name, 0.0, result=step)

    def _environment_task(self, ctx: Context) -> EnvironmentTask:
        """Return the task of environments; idle environments of another one are closed."""
        task = environment_task(ctx.task, "rollout=text_environment")
        if self._made_for != task:
            self.close()
            self._made_for = task
        return task

    def close(self) -> None:
        """Close the idle environments."""
        for environment in self._idle:
            environment.close()
        self._idle = []
