"""ASearcher: the answer's score counts where every turn of the search is well formed.

Beyond Ten Turns: Unlocking Long-Horizon Agentic Search with Large-Scale Asynchronous RL (ASearcher), 2025,
arXiv:2508.07976.

- reward: `FormattedAnswer`, R = F1(answer) * [every turn is well formed]
- loss: decoupled PPO, with weights pi_old / pi_behavior that are 0 above a cap: `ClippedSurrogate` with
  `MaskedImportanceSampling`, in `method=asearcher`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.files.patterns import compile_pattern
from mmrl.rewards.answers.token_f1 import token_f1
from mmrl.rewards.compose import WeightedSum

MALFORMED = ("NoCall", "BadArguments", "UnknownTool")  # outcomes of turns that are no call


@dataclass(frozen=True)
class FormattedAnswer(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k, with ASearcher's scores beside those of the task.

    format: 1 if no turn was a malformed call, the episode ended by itself, and its last turn has the form of
    `answer_pattern`; else 0. f1: token F1 of the answer, 0 where the last turn has none. formatted: f1 * format, which
    is the paper's reward.
    Source: ASearcher, 2025, arXiv:2508.07976, section 4; released code: ASearcher/train/asearcher.py.

    Args:
        weights: by name of the score.
        answer_pattern: regular expression that the whole last turn has; its first group is the answer.
    """

    answer_pattern: str = r"(?s)(?:(?!<answer>).)*<answer>((?:(?!</?answer>).)*)</answer>\s*"

    def __post_init__(self) -> None:
        compile_pattern("reward.answer_pattern", self.answer_pattern, "the answer")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> dict[str, float]:
        outcomes = [outcome for *_, outcome in episode.info.get("calls", ())]
        matched = re.fullmatch(self.answer_pattern, str(episode.output))
        formatted = matched is not None and episode.ended == "done" and not set(outcomes) & set(MALFORMED)
        f1 = token_f1(matched[1], episode.prompt.answer) if matched else 0.0
        return {"format": float(formatted), "f1": f1, "formatted": f1 * formatted}
