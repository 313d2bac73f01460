"""Stories of linked sentences, of which those with a hidden amount of surprise are best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.generated import GeneratedTask, ask_user
from tasks.grammar.language import CONSONANTS, VOWELS, is_sentence

SHARES = (0.7, 0.2, 0.1)
"""Probabilities of b, d and k, and of a, e and i, in the language of the stories."""
LETTERS = 4
"""Letters of a sentence: two syllables."""


def link_share(sentences: Sequence[str]) -> float:
    """Share of the sentences after the first one that begin with the last consonant of the sentence before."""
    links = [after[:1] == before[-2:-1] for before, after in pairwise(sentences)]
    return sum(links) / len(links) if links else 1.0


def measure_surprise(sentences: Sequence[str]) -> float:
    """Mean surprise in nats of the letters that a writer of the language draws: all but the first one of a sentence."""
    shares = dict(zip(CONSONANTS + VOWELS, SHARES * 2))
    surprises = [-math.log(shares[letter]) for sentence in sentences for letter in sentence[1:]]
    return sum(surprises) / len(surprises) if surprises else 0.0


def judge_coherence(question: str) -> str:
    """Judge the story in the last line of a question: the share of its sentences that are linked, in tenths.

    A text that has a sentence of another form is judged 0. For `ScriptedJudge`.
    """
    sentences = question.splitlines()[-1].split()
    whole = all(is_sentence(sentence, LETTERS) and len(sentence) == LETTERS for sentence in sentences)
    return str(round(10 * link_share(sentences))) if whole and sentences else "0"


@dataclass(frozen=True)
class Stories(GeneratedTask):
    """Go on with a story: an opening of two sentences, as `bada deba`, of four letters each.

    Sentences are linked: each begins with the last consonant of the one before. Of the other letters common ones are
    likely, so a story has a mean surprise per drawn letter S. The score `quality` is the share of linked sentences
    times exp(-(S - best)^2 / (2 width^2)), and 0 for another number of sentences or another form; `linked` and
    `surprise` are its parts, and `exact` says whether all is linked. Openings of the splits are disjoint.

    Args:
        sentences: that follow the opening.
        best: the hidden surprise of the best stories, in nats.
        width: of the inverted U.
    """

    sentences: int = 4
    best: float = 1.3
    width: float = 0.25

    name = "stories"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, f"task {self.name!r}:", sentences=self.sentences)
        check_positive(f"task {self.name!r}:", width=self.width, best=self.best)

    def draw(self, rng: np.random.Generator) -> tuple[str, ...]:
        uniform = (1 / 3,) * 3
        first = write_sentence(rng, str(rng.choice(list(CONSONANTS))), uniform)
        return first, write_sentence(rng, first[-2], uniform)

    def split_key(self, problem: tuple[str, ...]) -> str:
        return " ".join(problem)

    def write_prompt(self, problem: tuple[str, ...], key: str) -> Prompt:
        rng = derive_rng(self.name, "story", self.seed, key)
        sentences = list(problem)
        for _ in range(self.sentences):
            sentences.append(write_sentence(rng, sentences[-1][-2], SHARES))
        story = " ".join(sentences[len(problem) :])
        return Prompt(key, ask_user(f"{' '.join(problem)}:"), answer=story, info={"opening": list(problem)})

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """quality, linked, surprise in nats, and exact; all 0 for a text of another form."""
        sentences = final_line(answer).split(" ")
        whole = all(is_sentence(sentence, LETTERS) and len(sentence) == LETTERS for sentence in sentences)
        if not whole or len(sentences) != self.sentences:
            return {"quality": 0.0, "linked": 0.0, "surprise": 0.0, "exact": 0.0}
        linked = link_share([prompt.info["opening"][-1], *sentences])
        surprise = measure_surprise(sentences)
        liked = math.exp(-((surprise - self.best) ** 2) / (2 * self.width**2))
        return {"quality": linked * liked, "linked": linked, "surprise": surprise, "exact": float(linked == 1)}


def write_sentence(rng: np.random.Generator, first: str, shares: Sequence[float]) -> str:
    """Write a sentence of two syllables whose first letter is given, and whose others are drawn."""
    kinds = [VOWELS if place % 2 else CONSONANTS for place in range(1, LETTERS)]
    return first + "".join(kind[int(rng.choice(3, p=shares))] for kind in kinds)
