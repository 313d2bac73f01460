"""Three classes of which each is preferred to the next one, and the policy that none of them beats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cycle:
    """Preferences among three classes: the first beats the second, the second the third, and the third the first.

    Args:
        probabilities: above 1/2, with which each class is preferred to the next one.
    """

    probabilities: tuple[float, float, float]

    @property
    def matrix(self) -> list[list[float]]:
        """Preference of row over column; the diagonal is 1/2."""
        first, second, third = self.probabilities
        return [[0.5, first, 1 - third], [1 - first, 0.5, second], [third, 1 - second, 0.5]]

    @property
    def nash(self) -> list[float]:
        """Probabilities of the classes in the Nash policy: no answer is preferred to it with more than 1/2.

        A class is drawn in proportion to the margin with which the other two beat one another.
        """
        first, second, third = (2 * probability - 1 for probability in self.probabilities)
        total = first + second + third
        return [second / total, third / total, first / total]

    def prefer(self, first: int | None, second: int | None) -> float:
        """Return the probability that an answer of the first class is preferred to one of the second.

        An answer without a class loses to all that have one, and two of them are equal.
        """
        if first is None or second is None:
            return 0.5 + 0.5 * ((first is not None) - (second is not None))
        return self.matrix[first][second]
