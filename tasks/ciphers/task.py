"""Translate between toy languages: each has its own letters and its own order of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from mmrl.rewards.measures import chrf
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LANGUAGES = "ABCDEF"
WORDS = (
    *("sun", "moon", "star", "sea", "lake", "hill", "tree", "leaf", "bird", "fish", "fox", "cat", "dog", "red", "blue"),
    *(
        "green",
        "old",
        "new",
        "big",
        "small",
        "sees",
        "eats",
        "likes",
        "finds",
        "hides",
        "sings",
        "runs",
        "two",
        "three",
    ),
)


@dataclass(frozen=True)
class Ciphers(GeneratedTask):
    """Translation between languages that write the same words with other letters; every second one in reverse order.

    The letters of a language are a seeded permutation that the prompts do not show, so a policy has to learn it. A
    sentence is in one split alone, whatever the direction is. It stands in for the translation tasks of Hunyuan-MT
    (arXiv 2509.05209) and R1-T1 (arXiv 2502.19735).

    Args:
        directions: source and target languages, such as AB, from A to F.
        words: fewest and most words of a sentence.
        shown: the prompt shows the letters of both languages, so that the task is to apply them.
    """

    directions: Sequence[str] = ("AB", "BA", "AC")
    words: Sequence[int] = (2, 4)
    shown: bool = False

    name = "ciphers"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "directions", "words")
        check_range(self.name, "words", self.words, 1, 12)
        for pair in self.directions or ("",):
            if len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(LANGUAGES):
                raise ValueError(
                    f"task {self.name!r}: directions must be pairs of the languages {LANGUAGES}, such as AB, got "
                    f"{list(self.directions)}"
                )

    def draw(self, rng: np.random.Generator) -> tuple[str, tuple[str, ...]]:
        direction = self.directions[int(rng.integers(len(self.directions)))]
        count = int(rng.integers(self.words[0], self.words[1] + 1))
        return direction, tuple(WORDS[i] for i in rng.permutation(len(WORDS))[:count])

    def split_key(self, problem: tuple[str, tuple[str, ...]]) -> str:
        return " ".join(problem[1])

    def write_prompt(self, problem: tuple[str, tuple[str, ...]], key: str) -> Prompt:
        direction, words = problem
        source, target = (self.write(language, words) for language in direction)
        lines = [f"{language}: {draw_alphabet(language, self.seed)}" for language in direction] if self.shown else []
        question = f"{direction[0]}>{direction[1]}: {source}"
        return Prompt(key, ask_user("\n".join([*lines, question])), answer=target, info={"task": direction})

    def write(self, language: str, words: Sequence[str]) -> str:
        """Write a sentence in a language: its letters, and the words in its order."""
        ordered = words[::-1] if LANGUAGES.index(language) % 2 else words
        return " ".join(ordered).translate(str.maketrans(LETTERS, draw_alphabet(language, self.seed)))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the final line is the translation; chrf: of its character n-grams; format: words of small letters."""
        final = final_line(answer)
        well_formed = bool(final) and set(final) <= {*LETTERS, " "}
        similar = chrf(final, prompt.answer) if well_formed and len(final) <= 2 * len(prompt.answer) else 0.0
        return {"exact": float(final == prompt.answer), "chrf": similar, "format": float(well_formed)}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        direction, words = self.draw(rng)
        return self.write_answer(self.write(direction[1], words))


@lru_cache(maxsize=256)
def draw_alphabet(language: str, seed: int) -> str:
    """The letters with which a language writes a to z."""
    order = derive_rng("ciphers", "alphabet", language, seed).permutation(len(LETTERS))
    return "".join(LETTERS[i] for i in order)
