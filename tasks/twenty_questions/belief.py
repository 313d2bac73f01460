"""What an agent believes after noisy answers: probabilities of things, and the information of a question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.twenty_questions.table import TABLE


def binary_entropy(probability: float) -> float:
    """-p log2 p - (1 - p) log2(1 - p), bits; 0 at 0 and 1."""
    parts = np.array([probability, 1 - probability])
    return float(-(parts * np.log2(np.where(parts > 0, parts, 1.0))).sum())


class Belief:
    """Posterior over things that were equally likely, after answers that are wrong with a probability.

    Args:
        things: of the table.
        properties: that can be asked about.
        noise: probability of a wrong answer.
    """

    def __init__(self, things: Sequence[str], properties: Sequence[str], noise: float):
        self.noise = noise
        self.answers = {name: np.array([name in TABLE[thing] for thing in things]) for name in properties}
        self.probabilities = np.full(len(things), 1 / len(things))

    def update(self, name: str, yes: bool) -> None:
        """Bayes' rule after an answer; answers that contradict each other without noise leave it as it is."""
        posterior = self.probabilities * np.where(self.answers[name] == yes, 1 - self.noise, self.noise)
        if posterior.sum() > 0:
            self.probabilities = posterior / posterior.sum()

    def information(self, name: str) -> float:
        """Mutual information of a question's answer and the thing, bits: H(P(yes)) - H(noise)."""
        share = float(self.probabilities[self.answers[name]].sum())
        yes = share * (1 - self.noise) + (1 - share) * self.noise
        return max(binary_entropy(min(yes, 1.0)) - binary_entropy(self.noise), 0.0)

    def best(self) -> int:
        """Number of the likeliest thing, the first of several."""
        return int(self.probabilities.argmax())
