"""Hunyuan-MT (Chimera): the policy reads several drafts of a frozen translator and writes a better translation.

Hunyuan-MT Technical Report, 2025, arXiv:2509.05209.

- drafts of a frozen translator in the prompt: `add_drafts`, `DraftThenFuse`; a start that reads drafts:
  `DraftDemonstrations`
- parts of the reward beside a measure of similarity: `judge`, `terms`, `repetition`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.rewards.shaping import repeated_ngrams
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.hints import add_hint
from mmrl.rollouts.text.single_turn import SingleTurn


def add_drafts(prompt: Prompt, drafts: Sequence[str], mark: str = "~") -> Prompt:
    """Return the prompt with drafts behind the user's message, a line each; `info["drafts"]` has them.

    White space in a draft becomes single spaces, so that a draft is one line.
    """
    lines = [" ".join(draft.split()) for draft in drafts]
    draft_prompt = add_hint(prompt, "".join(f"\n{mark}{line}" for line in lines) + "\n", 1.0, "")
    return replace(draft_prompt, info={**prompt.info, "drafts": lines})


class DraftThenFuse(Rollout):
    """Single-turn answers of the policy to prompts with drafts, which a frozen model samples at several temperatures.

    The drafts of a prompt are those of its group, drawn anew in every iteration. Source: Hunyuan-MT, 2025,
    arXiv:2509.05209, with six drafts.

    Args:
        drafter: name of the translator in `model.frozen_models`.
        temperatures: of the drafts, one each.
        mark: text before each draft.
    """

    def __init__(
        self,
        drafter: str = "drafter",
        temperatures: Sequence[float] = (0.1, 0.5, 0.75, 1.0, 1.0, 1.25),
        mark: str = "~",
    ):
        if not temperatures or min(temperatures) <= 0:
            raise ValueError(f"rollout.temperatures must be numbers > 0, one a draft, got {list(temperatures)}")
        self.drafter, self.temperatures, self.mark = drafter, tuple(temperatures), mark

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.drafter})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        drafts: list[list[str]] = [[] for _ in prompts]
        for number, temperature in enumerate(self.temperatures):
            key = (ctx.seed, ctx.purpose, "draft", ctx.iteration, number)
            requests = [
                Request(text_observation(prompt), derive_seed(*key, slot), model=self.drafter)
                for slot, prompt in prompts
            ]
            done = ctx.engine.sample(requests, replace(ctx.sampling, temperature=temperature))
            for texts, completion in zip(drafts, done):
                texts.append(str(completion.output))
        fused = [(slot, add_drafts(prompt, texts, self.mark)) for (slot, prompt), texts in zip(prompts, drafts)]
        return SingleTurn().collect(fused, ctx)


def corrupt(text: str, words: Sequence[str], error: float, rng: np.random.Generator) -> str:
    """Replace each word of a text by one of `words` with probability `error`."""
    return " ".join(words[int(rng.integers(len(words)))] if rng.random() < error else word for word in text.split())


class DraftDemonstrations(Rollout):
    """Demonstrations for prompts with drafts, each draft the answer with some words replaced at random.

    Wrong words are words of answers to the prompts of the same iteration. Held-out prompts have such drafts too.

    Args:
        drafts: number of drafts in a prompt.
        error: probability that a word of a draft is wrong.
        mark: text before each draft.
    """

    samples = False

    def __init__(self, drafts: int = 6, error: float = 0.4, mark: str = "~"):
        check_at_least(1, "rollout", drafts=drafts)
        check_fraction("rollout", error=error)
        self.drafts, self.error, self.mark = drafts, error, mark

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        answers = [ctx.task.demonstrate(prompt.index) for _, prompt in prompts]
        words = sorted({word for answer in answers for word in answer.split()})
        episodes = []
        for (slot, prompt), answer in zip(prompts, answers):
            rng = derive_rng("drafts", ctx.seed, ctx.purpose, ctx.iteration, slot)
            drafts = [corrupt(answer, words, self.error, rng) for _ in range(self.drafts)]
            draft_prompt = add_drafts(prompt, drafts, self.mark)
            turn = Turn(demonstration(draft_prompt.observation, answer, ctx))
            episodes.append(Episode(draft_prompt, group=slot, sample_index=0, turns=[turn], source="demo"))
        return episodes


def judge(completion: str, answer: str) -> float:
    """Share of three rules that a translation keeps: as many words, the same first word, the same last word.

    It stands in for a model that judges by a rubric.
    """
    words, right = completion.split(), answer.split()
    if not words or not right:
        return 0.0
    return ((len(words) == len(right)) + (words[0] == right[0]) + (words[-1] == right[-1])) / 3


def terms(completion: str, answer: str, min_letters: int = 4) -> float:
    """Share of the terms of the reference, its words of at least `min_letters` letters, that the translation has.

    1 without terms. Source: Hunyuan-MT, 2025, arXiv:2509.05209, where a word aligner finds the terms.
    """
    reference_terms = {word for word in answer.split() if len(word) >= min_letters}
    return len(reference_terms & set(completion.split())) / len(reference_terms) if reference_terms else 1.0


def repetition(completion: str) -> float:
    """Minus the share of trigrams of words that occurred before; 0 for fewer than three words."""
    return repeated_ngrams(completion, ngram=3, penalty=-1.0)
