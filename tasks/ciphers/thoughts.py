"""Translation with thoughts: six ways to reason about a sentence, and demonstrations by the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode
from mmrl.rewards.measures import chrf
from mmrl.rewards.shaping import tag_format
from tasks.checks import reply_text
from tasks.ciphers.task import LANGUAGES, WORDS, Ciphers
from tasks.generated import to_tuples

TEMPLATES = ("hierarchical", "triangulating", "back_translation", "context_aware", "explanation", "structural")
"""Names of the ways to reason, as R1-T1 has them."""


@dataclass(frozen=True)
class ThoughtCiphers(Ciphers):
    """Ciphers whose answers are <think>...</think><answer>...</answer>, with thoughts of six templates.

    A demonstration is the best of one draft per template: the one whose translation has the highest chrF to the
    reference, and any of those that are equally good. Drafts are written with wrong words now and then, and their
    thoughts have the same wrong words. The score `format` is 1 if an answer is one pair of both tags and nothing else,
    and its translation consists of small letters. Source: R1-T1, 2025, arXiv:2502.19735, whose drafts a large model
    writes.

    Args:
        templates: of hierarchical (word by word), triangulating (through a third language), back_translation (a draft
            and what it says in the source language), context_aware (pairs of neighbours), explanation (letters of the
            longest word) and structural (the source in the order of the target).
        error: probability that a word of a draft is wrong.
    """

    templates: Sequence[str] = TEMPLATES
    error: float = 0.2
    extract: str | dict[str, Any] | None = field(default="tags", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "templates")
        if not self.templates or not set(self.templates) <= set(TEMPLATES) or not 0 <= self.error < 1:
            raise ValueError(
                f"task {self.name!r}: templates must be of {', '.join(TEMPLATES)} and error in [0, 1), got "
                f"{list(self.templates)} and {self.error}"
            )

    def draft(self, index: int) -> dict[str, tuple[str, ...]]:
        """Draw the words of one draft per template; some of them are wrong. The order of templates is random."""
        _, words = self.problem(index)
        rng = derive_rng(self.name, "thoughts", self.split, self.seed, index)
        order = rng.permutation(len(self.templates))
        return {self.templates[i]: tuple(self._miswrite(word, rng) for word in words) for i in order}

    def choose_template(self, index: int) -> tuple[str, tuple[str, ...]]:
        """Return template and words of the draft that is most similar to the reference by chrF."""
        (_, target), words = self.problem(index)
        reference = self.write(target, words)
        return max(self.draft(index).items(), key=lambda pair: chrf(self.write(target, pair[1]), reference))

    def demonstrate(self, index: int) -> str:
        direction, words = self.problem(index)
        template, drafted = self.choose_template(index)
        thoughts = self.think(template, direction, words, drafted)
        return f"<think>{thoughts}</think>{self.write_answer(self.write(direction[1], drafted))}"

    def think(self, template: str, direction: str, words: Sequence[str], drafted: Sequence[str]) -> str:
        """Write the thoughts of a template about a sentence and its draft."""
        source, target = direction
        pairs = [(self.write(source, [word]), self.write(target, [draft])) for word, draft in zip(words, drafted)]
        backwards = [LANGUAGES.index(language) % 2 == 1 for language in direction]
        pairs = pairs[::-1] if backwards[0] else pairs  # as they stand in the source
        if template == "hierarchical":
            return " ".join(f"{word}={draft}" for word, draft in pairs)
        if template == "triangulating":
            third = next(each for each in LANGUAGES if each not in direction)
            return f"{third}:{self.write(third, drafted)}"
        if template == "back_translation":
            return f"{self.write(target, drafted)}>{self.write(source, drafted)}"
        if template == "context_aware":
            return " ".join(f"{a[0]} {b[0]}={a[1]} {b[1]}" for a, b in zip(pairs, pairs[1:] or pairs))
        if template == "explanation":
            letters = dict(zip(*max(pairs, key=lambda pair: len(pair[0]))))
            return " ".join(f"{letter}{other}" for letter, other in letters.items())
        return self.write(source, words if backwards[0] == backwards[1] else words[::-1])

    def score(self, episode: Episode) -> dict[str, float]:
        scores = super().score(episode)
        return {**scores, "format": scores["format"] * tag_format(reply_text(episode))}

    def _miswrite(self, word: str, rng: np.random.Generator) -> str:
        other = WORDS[int(rng.integers(len(WORDS)))]
        return other if rng.random() < self.error else word
