"""R1-Searcher: rewards of two stages, first of a retrieval and the format, then of the answer.

R1-Searcher: Incentivizing the Search Capability in LLMs via Reinforcement Learning, 2025, arXiv:2503.05592.

- scores of an episode with searches: `SearchScores`
- their weights by stage: `mmrl.schedules.Piecewise` with steps
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode
from mmrl.files.patterns import compile_pattern
from mmrl.rewards.answers.token_f1 import token_f1
from mmrl.rewards.compose import WeightedSum

SUCCEEDED = ("ok", "truncated")  # outcomes of calls whose result the policy read


@dataclass(frozen=True)
class SearchScores(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k, with the scores of R1-Searcher beside those of the task.

    retrieval: 1 if a call returned a result. format: 1 if every call did, the episode ended by itself, its last turn
    has the form of `answer_pattern`, and the answer has at most `max_words` words and none of `forbidden`; else 0.
    broken: 1 - format. f1: token F1 of the answer; 0 where the last turn has none.

    With p_f the penalty of a broken format, 2 (Qwen) or 1 (Llama), the rewards of the two stages are
    .5 retrieval + .5 format, and f1 - p_f broken.
    Source: R1-Searcher, 2025, arXiv:2503.05592, section 3.2; released code: reward_server_qwen_zero.py.

    Args:
        weights: by name of the score.
        answer_pattern: regular expression that the whole last turn has; its first group is the answer.
        forbidden: texts that an answer must not have in it, such as the marks of calls.
        max_words: of an answer.
    """

    answer_pattern: str = r"(?s)(?:(?!</think>|<answer>).)*</think>\s*<answer>((?:(?!</?answer>).)*)</answer>\s*"
    forbidden: Sequence[str] = ("<search>", "</search>", "<information>", "</information>")
    max_words: int = 10

    def __post_init__(self) -> None:
        check_at_least(1, "reward", max_words=self.max_words)
        compile_pattern("reward.answer_pattern", self.answer_pattern, "the answer")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> dict[str, float]:
        outcomes = [outcome for *_, outcome in episode.info.get("calls", ())]
        matched = re.fullmatch(self.answer_pattern, str(episode.output))
        answer = matched[1] if matched else ""
        has_format = (
            matched is not None
            and episode.ended == "done"
            and all(outcome in SUCCEEDED for outcome in outcomes)
            and len(answer.split()) <= self.max_words
            and not any(text in answer for text in self.forbidden)
        )
        return {
            "retrieval": float(any(outcome in SUCCEEDED for outcome in outcomes)),
            "format": float(has_format),
            "broken": float(not has_format),
            "f1": token_f1(answer, episode.prompt.answer),
        }
