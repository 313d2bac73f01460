"""Rollouts in which the task answers or acts in place of the policy: its expert, or at random."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.text_environment import EnvironmentTask, TextEnvironment
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.text.environment_episode import EnvironmentEpisode


class Scripted(Rollout):
    """Base class of rollouts that write answers, or act in text environments, without a policy and without tokens."""

    samples = False

    @abstractmethod
    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        """Return the answer to one prompt."""

    @abstractmethod
    def act(self, environment: TextEnvironment, rng: np.random.Generator) -> str:
        """Return the action in a state of a text environment."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = []
        for slot, prompt in prompts:
            text_observation(prompt)  # refuses the prompts of simulators
            for index in ctx.sample_indices(slot):
                rng = self._draws(slot, index, ctx)
                if isinstance(ctx.task, EnvironmentTask):
                    episodes.append(play_episode(ctx.task, prompt, partial(self.act, rng=rng), slot, index))
                else:
                    episodes.append(scripted_episode(prompt, self.answer(prompt, ctx, rng), slot, index))
        return episodes

    def _draws(self, slot: int, index: int, ctx: Context) -> np.random.Generator:
        return derive_rng("scripted", ctx.seed, ctx.purpose, ctx.iteration, slot, index)


class Expert(Scripted):
    """Every answer is the demonstration of the task's expert: the ceiling of its scores."""

    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        return str(ctx.task.demonstrations([prompt])[0][-1][1])

    def act(self, environment: TextEnvironment, rng: np.random.Generator) -> str:
        return environment.expert_action()


class Guess(Scripted):
    """Every answer is drawn by `Task.guess`, which does not read the problem: the floor of its scores."""

    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        return ctx.task.guess(prompt, rng)

    def act(self, environment: TextEnvironment, rng: np.random.Generator) -> str:
        return environment.random_action(rng)


def scripted_episode(prompt: Prompt, text: str, group: int = 0, sample_index: int = 0) -> Episode:
    """Episode whose only turn is this text."""
    return Episode(prompt, group, sample_index, [Turn(_completion(text))], source="demo")


def play_episode(
    task: EnvironmentTask,
    prompt: Prompt,
    act: Callable[[TextEnvironment], str],
    group: int = 0,
    sample_index: int = 0,
) -> Episode:
    """Play an episode of a text environment with a function from the environment to an action."""
    environment = task.make_environment()
    play = EnvironmentEpisode(Episode(prompt, group, sample_index, source="demo"), task.max_turns)
    play.read(environment.reset(prompt, derive_seed("scripted", prompt.key, group, sample_index)))
    while not play.over:
        action = act(environment)
        play.write(_completion(action), action)
        play.read(environment.step(action))
    environment.close()
    return play.episode


def _completion(text: str) -> Completion:
    none = torch.zeros(0)
    return Completion({}, none.long(), none, none.bool(), text)
