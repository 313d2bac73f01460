"""RLSP: outcome reward plus an exploration reward that grows with the length of the reasoning.

On the Emergence of Thinking in LLMs I: Searching for the Right Intuition, 2025, arXiv:2502.06773.

- outcome, length of the reasoning and the score of a judge: `search_reward`, as a reward `SearchReward`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode
from mmrl.rewards.compose import WeightedSum

CHARACTERS = 4
"""Characters that count as one token."""


def count_reasoning(completion: str, marker: str | None = "\\boxed") -> float:
    """Length of the text before the answer, in tokens of four characters.

    The answer begins at the first `marker`; without one all of the text is counted. With no marker set it is the last
    line. Source: the code of RLSP, 2025, arXiv:2502.06773.
    """
    text = completion.strip()
    place = text.rfind("\n") + 1 if marker is None else text.find(marker)
    return (place if place >= 0 else len(text)) / CHARACTERS


def search_reward(outcome: float, reasoning: float, length_coef: float, lowest: float | None = None) -> float:
    """Return outcome - length_coef / reasoning, at least `lowest`: a penalty of short reasoning.

    The cost has no bound as the reasoning gets short; `lowest` gives it one, and is the reward without reasoning.
    Source: the code of RLSP, 2025, with length_coef = 1000 tokens, arXiv:2502.06773.
    """
    if not length_coef:
        return outcome
    if reasoning <= 0:
        if lowest is None:
            raise ValueError("reward.lowest is null, and a completion has no text before its answer; set a number")
        return lowest
    value = outcome - length_coef / reasoning
    return value if lowest is None else max(value, lowest)


@dataclass(frozen=True)
class SearchReward(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k, with the score `search` of outcome and reasoning among them.

    search = outcome - length_coef / n, see `search_reward`: outcome is 1 for a right answer, 0 for a wrong one, and
    `no_answer` where the score `format` is below 1; n is the length of the text before the answer. The paper gives it a
    weight of 0.8 beside 0.2 for a judge's score, or 1. Source: On the Emergence of Thinking in LLMs I, 2025, RLSP,
    arXiv:2502.06773.

    Args:
        weights: by name of the score; {search: 0.8, judge: 0.2}, for example.
        length_coef: tokens at which the length costs 1; 0 for none.
        no_answer: outcome of a completion without an answer.
        lowest: bound of `search`; null for none.
        marker: with which the answer begins; null for the last line.
    """

    length_coef: float = 1000.0
    no_answer: float = -0.5
    lowest: float | None = None
    marker: str | None = "\\boxed"

    def __post_init__(self) -> None:
        check_at_least(0, "reward", length_coef=self.length_coef)
        if self.marker == "":
            raise ValueError("reward.marker is empty; name the text with which the answer begins, or null")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [{"search": self._search(episode)} for episode in episodes]

    def _search(self, episode: Episode) -> float:
        for name in ("exact", "format"):
            if name not in episode.scores:
                raise KeyError(f"data.reward: {episode.prompt.key!r} has no score {name!r}; use a task that has it")
        outcome = float(episode.scores["exact"] >= 1) if episode.scores["format"] >= 1 else self.no_answer
        reasoning = count_reasoning(str(episode.output), self.marker)
        return search_reward(outcome, reasoning, self.length_coef, self.lowest)
