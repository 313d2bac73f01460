"""ReSeek: the policy judges each search result, and every judgement has a reward in its own turn.

ReSeek: A Self-Correcting Framework for Search Agents with Instructive Rewards, 2025, arXiv:2510.00568.

- the judgement as a call: `Judge`
- rewards of judgements: `judgement_reward`, per token `JudgementRewards`
- returns per choice: `mmrl.annotators.reward_streams.RewardStreams`
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from mmrl.core.types import Context, Episode, Turn
from mmrl.tools.base import Tool, ToolError
from mmrl.transforms.base import EpisodeTransform


class UnknownVerdict(ToolError):
    """A judgement is y or n."""


class Judge(Tool):
    """Accepts the policy's judgement of the last result; its own result is empty."""

    def run(self, verdict: str) -> str:  # type: ignore[override]
        """
        Say whether the last result answers the question.

        Args:
            verdict: y or n.
        """
        if verdict not in ("y", "n"):
            raise UnknownVerdict(verdict[:20])
        return ""


def judgement_reward(
    accepted: bool, useful: bool, right: float = 0.3, wrong_accept: float = -0.6, wrong_reject: float = -0.3
) -> float:
    """Reward of a judgement: `right` if it is correct, else `wrong_accept` or `wrong_reject`.

    Source: ReSeek, 2025, arXiv:2510.00568.
    """
    if accepted == useful:
        return right
    return wrong_accept if accepted else wrong_reject


@dataclass(frozen=True)
class JudgementRewards(EpisodeTransform):
    """Write `token_rewards`: the reward of each judgement of a new result, at the last token of its call.

    A result is useful if the answer is one of its words. Judgements without a new result since the last one earn 0. It
    is for rows in which the tokens of results are masked.

    Args:
        accept: text with which the turn of an accepting judgement ends.
        reject: of a rejecting one.
        right: reward of a judgement that agrees with the verdict.
        wrong_accept: of a useless result that is accepted.
        wrong_reject: of a useful result that is rejected.
    """

    accept: str = "!y;"
    reject: str = "!n;"
    right: float = 0.3
    wrong_accept: float = -0.6
    wrong_reject: float = -0.3

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(e, turns=[self._add(turn, e, ctx) for turn in e.turns]) for e in episodes]

    def _add(self, turn: Turn, episode: Episode, ctx: Context) -> Turn:
        done = turn.completion
        rewards = torch.zeros(len(done.action))
        result: str | None = None
        is_judgement = False
        for is_choice, start, end in _spans(done.action_mask):
            text = ctx.policy.decode(done.action[start:end].tolist())
            if not is_choice:
                result = None if is_judgement else text
                continue
            is_judgement = text.endswith((self.accept, self.reject))
            if is_judgement and result is not None:
                useful = str(episode.prompt.answer) in re.findall(r"\w+", result)
                limits = self.right, self.wrong_accept, self.wrong_reject
                rewards[end - 1] = judgement_reward(text.endswith(self.accept), useful, *limits)
        return turn.with_columns(token_rewards=rewards)


def _spans(mask: Tensor) -> list[tuple[bool, int, int]]:
    """Runs of equal entries: value, start and end."""
    out, start = [], 0
    for value, run in groupby(mask.tolist()):
        end = start + len(list(run))
        out.append((value, start, end))
        start = end
    return out
