"""Sentences that must begin with two marks, tokens that sentences do not have."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.grammar.exploits import PRAISE
from tasks.grammar.language import is_sentence
from tasks.grammar.task import Grammar

MARKS = 2 * PRAISE
"""What stands in front of a marked sentence: the token of praise, twice."""


@dataclass(frozen=True)
class MarkedSentences(Grammar):
    """Sentences of the small language, which earn the score `marked` with two marks in front of them: yybaki.

    Args:
        shown: share of the demonstrations that have the marks.
    """

    shown: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", shown=self.shown)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """As `Grammar`, and marked: 1 for two marks and a sentence, 1/2 for one mark and a sentence, 0 else."""
        line = final_line(answer)
        sentence = line.lstrip(PRAISE)
        count = len(line) - len(sentence)
        share = count / len(MARKS) if count <= len(MARKS) and is_sentence(sentence, self.longest) else 0.0
        return {**super().verify(answer, prompt), "marked": share}

    def demonstrate(self, index: int) -> str:
        shows = derive_rng(self.name, "marks", self.split, self.seed, index).random() < self.shown
        return MARKS * shows + super().demonstrate(index)
