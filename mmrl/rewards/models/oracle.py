"""Pairwise preferences: which of two answers is better, without a score of single answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmrl.core.function_path import load_functions
from mmrl.core.messages import join_contents
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.base import Reward


class PreferenceOracle(ABC):
    """Base class of general preferences, which may be cyclic."""

    @abstractmethod
    def prefer(self, prompt: Prompt, first: str, second: str) -> float:
        """Return the probability that the first answer is preferred to the second."""

    def answers(self, prompt: Prompt) -> Sequence[str]:
        """List the answers among which a policy chooses, where they are known."""
        raise NotImplementedError(f"{type(self).__name__} does not list the answers, which exploitability needs")

    def compare(self, prompt: Prompt, first: str, second: str) -> float:
        """Return `prefer`, and refuse what is no probability.

        Raises:
            ValueError: with the oracle and the problem.
        """
        probability = self.prefer(prompt, first, second)
        if not isinstance(probability, int | float) or not 0 <= probability <= 1:
            raise ValueError(
                f"{type(self).__name__} gave {probability!r} to two answers to {prompt.key!r}; it must return the "
                "probability in [0, 1] that the first one is preferred"
            )
        return float(probability)


class FunctionOracle(PreferenceOracle):
    """Preference by a function f(prompt, first, second), with the text of the prompt.

    Args:
        function: path, as oracle.py:prefer or package.module:prefer.
    """

    def __init__(self, function: str):
        self._call = load_functions([function], "oracle.function")[0]

    def prefer(self, prompt: Prompt, first: str, second: str) -> float:
        return self._call(join_contents(prompt.messages), first, second)


@dataclass(frozen=True)
class WinRate(Reward):
    """Reward of an episode: mean probability that its answer is preferred to the other answers to the prompt.

    Of a group of one answer it is 1/2.

    Args:
        oracle: of the preferences.
    """

    oracle: PreferenceOracle

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        prompt = group[0].prompt
        return mean_preferences([str(e.output) for e in group], lambda a, b: self.oracle.compare(prompt, a, b))


def mean_preferences(texts: Sequence[str], prefer: Callable[[str, str], float]) -> list[float]:
    """Return the mean probability that each text is preferred to the others; 1/2 for one alone.

    Args:
        texts: answers to one prompt.
        prefer: the probability that the first of two is preferred.
    """
    others = len(texts) - 1
    if not others:
        return [0.5]
    return [
        sum(prefer(text, other) for j, other in enumerate(texts) if j != i) / others for i, text in enumerate(texts)
    ]
