"""Rollouts in which the task answers in place of the policy: its expert, or a random answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from mmrl.rng import derive_rng
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class Scripted(Rollout):
    """Base class of rollouts that write answers without a policy; an answer has no tokens."""

    samples = False

    @abstractmethod
    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        """Return the answer to one prompt."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = []
        for slot, prompt in prompts:
            text_observation(prompt)  # refuses the prompts of simulators
            for index in ctx.sample_indices(slot):
                text = self.answer(prompt, ctx, self._draws(slot, index, ctx))
                episodes.append(scripted_episode(prompt, text, slot, index))
        return episodes

    def _draws(self, slot: int, index: int, ctx: Context) -> np.random.Generator:
        return derive_rng("scripted", ctx.seed, ctx.purpose, ctx.iteration, slot, index)


class Expert(Scripted):
    """Every answer is the demonstration of the task's expert: the ceiling of its scores."""

    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        return str(ctx.task.demonstrations([prompt])[0][-1][1])


class Guess(Scripted):
    """Every answer is drawn by `Task.guess`, which does not read the problem: the floor of its scores."""

    def answer(self, prompt: Prompt, ctx: Context, rng: np.random.Generator) -> str:
        return ctx.task.guess(prompt, rng)


def scripted_episode(prompt: Prompt, text: str, group: int = 0, sample_index: int = 0) -> Episode:
    """Episode whose only turn is this text."""
    none = torch.zeros(0)
    completion = Completion({}, none.long(), none, none.bool(), text)
    return Episode(prompt, group, sample_index, [Turn(completion)], source="demo")
