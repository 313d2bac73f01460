"""A cyclic preference with a known matrix and a known Nash policy: b beats d, d beats k, k beats b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import check_interval
from tasks.checks import final_line
from tasks.cyclic.cycle import Cycle
from tasks.grammar.language import CONSONANTS, is_sentence


@dataclass(frozen=True)
class CyclicPreference:
    """Probability that one of two answers is preferred, by the first letters of the sentences.

    No reward explains it: with strengths above 1/2 each class loses to another one. An answer that is no sentence loses
    to every sentence, and two of them are equal.

    Args:
        strengths: probabilities in (1/2, 1] with which b is preferred to d, d to k, and k to b.
        longest: letters of the longest sentence.
    """

    strengths: Sequence[float] = (0.9, 0.8, 0.7)
    longest: int = 8

    def __post_init__(self) -> None:
        if len(self.strengths) != len(CONSONANTS):
            raise ValueError(f"cyclic preference: strengths must be three probabilities, got {list(self.strengths)}")
        for strength in self.strengths:
            check_interval("cyclic preference:", "(0.5, 1]", strength=strength)

    @property
    def cycle(self) -> Cycle:
        """Preferences among the classes b, d and k."""
        first, second, third = self.strengths
        return Cycle((first, second, third))

    @property
    def matrix(self) -> list[list[float]]:
        """Preference of row over column, of the classes b, d and k; the diagonal is 1/2."""
        return self.cycle.matrix

    @property
    def nash(self) -> list[float]:
        """Probabilities of b, d and k in the Nash policy: no answer is preferred to it with more than 1/2."""
        return self.cycle.nash

    def classify(self, answer: str) -> int | None:
        """Return the class of an answer, 0 to 2 for b, d and k; None for no sentence."""
        line = final_line(answer)
        return CONSONANTS.index(line[0]) if is_sentence(line, self.longest) else None

    def __call__(self, first: str, second: str) -> float:
        """Return the probability that the first answer is preferred."""
        return self.cycle.prefer(self.classify(first), self.classify(second))
