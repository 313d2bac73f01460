"""Paragraphs of sentences, with shares of letters as scores, ratings of them, and demonstrations that follow a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from tasks.checks import final_line
from tasks.grammar.language import CONSONANTS, VOWELS, is_sentence
from tasks.grammar.task import Grammar, Problem

LOWEST, HIGHEST = 1.0, 10.0
"""Ends of the scale of ratings."""


def share_of(letter: str, text: str) -> float:
    """The share of a letter among the letters of its kind, consonants or vowels; 0 of a text without any."""
    kind = CONSONANTS if letter in CONSONANTS else VOWELS
    total = sum(text.count(each) for each in kind)
    return text.count(letter) / total if total else 0.0


@dataclass(frozen=True)
class Paragraphs(Grammar):
    """Paragraphs: sentences of the small language with a blank between two of them, as badi keka.

    Each of `objectives` has the score share_LETTER, the share of the letter among the consonants or the vowels of a
    paragraph. A prompt also has a paragraph with ratings of the objectives, for scorers: `chosen` and `labels`.

    Args:
        sentences: most sentences of a paragraph; of demonstrations their number.
        rich: probability with which a sentence that is rich in a letter has it where it can.
        planned: whether demonstrations follow a plan: the first sentence is rich in one of the objectives, and each
            further one in the next of them.
        noise: standard deviation of ratings, which are from 1 to 10.
    """

    sentences: int = 3
    rich: float = 0.8
    planned: bool = False
    noise: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        here = f"task {self.name!r}:"
        check_at_least(1, here, sentences=self.sentences)
        check_at_least(0, here, noise=self.noise)
        check_fraction(here, rich=self.rich)
        if not self.objectives or tuple(self.levels) != (0,):
            raise ValueError(f"{here} paragraphs need objectives, such as bae, and levels=[0], which asks for nothing")

    def write_prompt(self, problem: Problem | tuple[int, str], key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        rng = derive_rng(self.name, "rated", self.split, self.seed, self.split_key(problem))
        kinds = [rng.choice([*self.objectives, ""]) for _ in range(int(rng.integers(1, self.sentences + 1)))]
        text = self.write_sentences(kinds, rng)
        ratings = {letter: self.rate(letter, text, float(rng.normal())) for letter in self.objectives}
        return replace(prompt, info={**prompt.info, "chosen": text, "labels": ratings})

    def rate(self, letter: str, text: str, error: float) -> float:
        """Rate a text from 1 to 10 by the share of a letter, with an error in units of `noise`."""
        rating = LOWEST + (HIGHEST - LOWEST) * share_of(letter, text) + self.noise * error
        return float(np.clip(rating, LOWEST, HIGHEST))

    def write_sentences(self, kinds: Sequence[str], rng: np.random.Generator) -> str:
        """Write a sentence for each of these letters, rich in it; the empty text stands for no letter."""
        return " ".join(self._write_sentence(kind, rng) for kind in kinds)

    def _write_sentence(self, kind: str, rng: np.random.Generator) -> str:
        size = int(rng.integers(1, self.longest // 2 + 1))
        letters = [group[int(rng.integers(len(group)))] for _ in range(size) for group in (CONSONANTS, VOWELS)]
        return "".join(
            kind if kind and rng.random() < self.rich and (kind in CONSONANTS) == (letter in CONSONANTS) else letter
            for letter in letters
        )

    def score(self, episode: Episode) -> dict[str, float]:
        """The scores of a paragraph; of the number that a scorer answers those that its rollout compared."""
        return dict(episode.info["scores"]) if isinstance(episode.output, float) else super().score(episode)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact and format: a paragraph; share_LETTER of each objective in it, 0 of another text; planned, also plan,
        the mean share that each further sentence has of the objective after the one that the sentence before has most.
        """
        line = final_line(answer)
        parts = line.split(" ")
        right = len(parts) <= self.sentences and all(is_sentence(part, self.longest) for part in parts)
        shares = {f"share_{letter}": share_of(letter, line) * right for letter in self.objectives}
        plan = {"plan": self.follow_plan(parts) * right} if self.planned else {}
        return {"exact": float(right), "format": float(right), **shares, **plan}

    def follow_plan(self, sentences: Sequence[str]) -> float:
        """How far sentences follow the plan, from 0 to 1; 0 of a single sentence."""
        size, steps = len(self.objectives), []
        for before, after in pairwise(sentences):
            most = max(range(size), key=lambda k: share_of(self.objectives[k], before))
            steps.append(share_of(self.objectives[(most + 1) % size], after))
        return sum(steps) / len(steps) if steps else 0.0

    def demonstrate(self, index: int) -> str:
        rng = derive_rng(self.name, "paragraph", self.split, self.seed, index)
        first = int(rng.integers(len(self.objectives)))
        kinds = [self.objectives[(first + k) % len(self.objectives)] for k in range(self.sentences)]
        return self.write_answer(self.write_sentences(kinds if self.planned else [""] * self.sentences, rng))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(self.write_sentences([""] * self.sentences, rng))
