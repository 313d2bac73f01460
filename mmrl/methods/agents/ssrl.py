"""SSRL: the policy writes its searches and their results by itself, and learns from the answer and the format.

SSRL: Self-Search Reinforcement Learning, 2025, arXiv:2508.10874.

- scores of a completion: `SelfSearchScores`
- information mask: `InformationMask`
- a real search engine in the place of the policy's own: the rollout `mmrl.rollouts.text.tools.ToolUse`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from mmrl.core.types import Context, Episode, Turn
from mmrl.files.patterns import compile_pattern
from mmrl.rewards.answers.token_f1 import normalise_words
from mmrl.rewards.compose import WeightedSum
from mmrl.transforms.base import EpisodeTransform

MANY_ANSWERS = 10  # above which a right answer counts a quarter


def _block(tag: str) -> str:
    """Pattern of a pair of tags without another tag of the format inside."""
    return rf"<{tag}>(?:(?!</?(?:think|search|information|answer)>).)*</{tag}>\s*"


FORMAT = rf"(?s)\s*(?:{_block('think')}{_block('search')}{_block('information')})*{_block('think')}{_block('answer')}"
"""Thoughts, a search and its information any number of times; then thoughts and one answer."""


@dataclass(frozen=True)
class SelfSearchScores(WeightedSum):
    """Reward of a completion: sum_k weights_k * scores_k, with two scores beside those of the task.

    format: 1 if the whole completion has the form of `format_pattern`, else 0. match: 1 if the last answer equals a
    right one in lower case without punctuation and articles, else 0; a quarter in a completion with more than ten
    answers. The paper's reward is .9 match + .1 format.
    Source: SSRL, 2025, arXiv:2508.10874; released code: verl/workers/reward_manager/naive.py.

    Args:
        weights: by name of the score.
        format_pattern: regular expression of a whole completion.
        answer_pattern: regular expression of an answer, its first group.
    """

    format_pattern: str = FORMAT
    answer_pattern: str = r"(?s)<answer>(.*?)</answer>"

    def __post_init__(self) -> None:
        compile_pattern("reward.format_pattern", self.format_pattern)
        compile_pattern("reward.answer_pattern", self.answer_pattern, "the answer")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._score(str(episode.output), episode.prompt.answer) for episode in episodes]

    def _score(self, text: str, right: str | Sequence[str]) -> dict[str, float]:
        answers = [found[1] for found in re.finditer(self.answer_pattern, text)]
        all_right = [right] if isinstance(right, str) else right
        matches = bool(answers) and normalise_words(answers[-1]) in [normalise_words(str(each)) for each in all_right]
        return {
            "format": float(re.fullmatch(self.format_pattern, text) is not None),
            "match": float(matches) / (4 if len(answers) > MANY_ANSWERS else 1),
        }


@dataclass(frozen=True)
class InformationMask(EpisodeTransform):
    """Leave the tokens between two marks out of the loss, as those of a search engine would be.

    The marks themselves are trained on. A token with a character between them is masked; without the closing mark all
    that follows is.
    Source: SSRL, 2025, arXiv:2508.10874, information mask.

    Args:
        open_mark: before the information.
        close_mark: after it.
    """

    open_mark: str = "<information>"
    close_mark: str = "</information>"

    def __post_init__(self) -> None:
        if not self.open_mark or not self.close_mark:
            raise ValueError(
                "data.transforms: open_mark and close_mark must be texts, got "
                f"{self.open_mark!r} and {self.close_mark!r}"
            )

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(episode, turns=[self._mask(turn, ctx) for turn in episode.turns]) for episode in episodes]

    def _mask(self, turn: Turn, ctx: Context) -> Turn:
        completion = turn.completion
        texts = ctx.policy.token_texts(completion.action.tolist())
        inside = torch.tensor(self.find_tokens(texts), dtype=torch.bool)
        return replace(turn, completion=replace(completion, action_mask=completion.action_mask & ~inside))

    def find_tokens(self, texts: Sequence[str]) -> list[bool]:
        """Tell of each token, by its text, whether it has a character between the marks."""
        inside = [False] * sum(map(len, texts))
        for found in self._pattern.finditer("".join(texts)):
            inside[slice(*found.span(1))] = [True] * len(found[1])
        result, start = [], 0
        for text in texts:
            result.append(any(inside[start : start + len(text)]))
            start += len(text)
        return result

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        before, after = re.escape(self.open_mark), re.escape(self.close_mark)
        return re.compile(rf"(?s){before}(.*?)(?:{after}|\Z)")
