"""MaskSearch: fill masked spans of a passage by search, with more masks from stage to stage, then answer questions.

MaskSearch: A Universal Pre-Training Framework to Enhance Agentic Search Capability, 2025, arXiv:2505.20285.

- answer terms of the reward, `token_recall` and `penalised_recall`, and its format: `MaskReward`
- one mask, then two and more: the curriculum `Stages`; masked passages of the wiki: `tasks.wiki.masked.MaskedWiki`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.rewards.answers.token_f1 import normalise_words
from mmrl.rewards.compose import WeightedSum


def token_recall(text: str, answer: str) -> float:
    """Share of the answer's words that are in the text, each as often as it is in both.

    More words can only raise it, so that a list of candidates earns as much as the answer.
    """
    words, right = normalise_words(text), normalise_words(answer)
    return sum((Counter(words) & Counter(right)).values()) / len(right) if right else 0.0


def penalised_recall(text: str, answer: str) -> float:
    """Token recall, times the length of the answer over that of the text where the text is longer, in words."""
    words, right = normalise_words(text), normalise_words(answer)
    return token_recall(text, answer) * min(1.0, len(right) / len(words)) if words else 0.0


@dataclass(frozen=True)
class MaskReward(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k, with MaskSearch's scores beside those of the task.

    recall and penalised_recall: of the last turn's words. fillers: 1 if the episode ended by itself and its last turn
    has as many words as the answer. The third answer term of the paper, equality by a judge, is the task's `exact`.
    Source: MaskSearch, 2025, section 2.3, arXiv:2505.20285.

    Args:
        weights: by name of the score.
    """

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> dict[str, float]:
        text, answer = str(episode.output), str(episode.prompt.answer)
        complete = len(normalise_words(text)) == len(normalise_words(answer)) and episode.ended == "done"
        return {
            "recall": token_recall(text, answer),
            "penalised_recall": penalised_recall(text, answer),
            "fillers": float(complete),
        }
