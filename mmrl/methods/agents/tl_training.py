"""TL-Training: no imitation of calls that failed, and larger weights of the tokens that decide on the tool.

TL-Training: A Task-Feature-Based Framework for Training Large Language Models in Tool Use, 2024, arXiv:2412.15495.

- calls whose tool replied with an error are not imitated: `MaskFailedCalls`
- key tokens, at which a tool's name begins or first differs from another one's: `find_key_characters`, `KeyTokens`
- loss (w sum_key l + sum_other l) / (w #key + #other), w = min(#other / #key, 9): `KeyTokenMean`
- the reward by kinds of errors is `tasks.calls.rewards:error_penalty`, for PPO with a KL penalty
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least
from mmrl.core.messages import content_text
from mmrl.core.types import Context, Episode, Turn
from mmrl.files.patterns import compile_pattern
from mmrl.objectives.weighting import Total, Weighting
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.steps import fit_texts

register_columns(
    {"key_tokens": Column("[N, T]", "bool", "TL-Training: whether a token decides which tool is called", pad=False)}
)

_NAME = re.compile(r'"name"\s*:\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class MaskFailedCalls(EpisodeTransform):
    """Masks the demonstrated turns to which the next message of the conversation is an error: no token is imitated.

    Later turns still see the failed call and the error in their context. Source: TL-Training, 2024, section 4.1
    (mitigating adverse effects), arXiv:2412.15495.

    Args:
        errors: regular expression that is searched in the reply to a turn.
    """

    errors: str = "(?i)error"

    def __post_init__(self) -> None:
        compile_pattern("data.transforms.failed_calls.errors", self.errors)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        decisions = ctx.task.demonstrations([episode.prompt for episode in episodes])
        return [self._mask(e, [raw["messages"] for raw, _ in each]) for e, each in zip(episodes, decisions)]

    def _mask(self, episode: Episode, contexts: Sequence[Sequence[dict]]) -> Episode:
        if episode.source != "demo" or len(episode.turns) != len(contexts):
            raise ValueError(
                f"failed_calls: {episode.prompt.key!r} has {len(episode.turns)} turns of {episode.source!r}, and its "
                f"demonstration {len(contexts)}; choose rollout=demonstrations"
            )
        replies = [
            content_text(after[len(before) + 1].get("content")) for before, after in itertools.pairwise(contexts)
        ]
        failed = [re.search(self.errors, reply) is not None for reply in replies]
        turns = [_mask_turn(turn) if drop else turn for turn, drop in zip(episode.turns, [*failed, False])]
        return replace(episode, turns=turns)


def _mask_turn(turn: Turn) -> Turn:
    done = turn.completion
    return replace(turn, completion=replace(done, action_mask=torch.zeros_like(done.action_mask)))


def find_key_characters(name: str, others: Collection[str]) -> set[int]:
    """Return the places in a tool's name at which it begins, or first differs from another tool's name.

    The place behind its end, of the quotation mark, is one where another name goes on.
    """
    return {0} | {_count_common(name, other) for other in others if other != name}


def _count_common(one: str, other: str) -> int:
    """Count the characters with which both begin."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))


@dataclass(frozen=True)
class KeyTokens(EpisodeTransform):
    """Write `key_tokens`: whether a key character of the name of a called tool lies in the token.

    A call is JSON with a "name". Source: TL-Training, 2024, section 4.2 (prioritising key tokens), arXiv:2412.15495.

    Args:
        tools: key of `Prompt.info` whose value lists the names of the tools that a prompt offers.
    """

    tools: str = "parameters"

    def writes(self) -> frozenset[str]:
        return frozenset({"key_tokens"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(e, turns=[self._mark(turn, e, ctx) for turn in e.turns]) for e in episodes]

    def _mark(self, turn: Turn, episode: Episode, ctx: Context) -> Turn:
        if self.tools not in episode.prompt.info:
            raise ValueError(
                f"key_tokens: {episode.prompt.key!r} has no info {self.tools!r}, which names the offered tools; it has "
                f"{sorted(episode.prompt.info)}; set data.transforms.key_tokens.tools"
            )
        done, names = turn.completion, list(episode.prompt.info[self.tools])
        text = str(done.output)
        calls = list(_NAME.finditer(text))
        keys = sorted({m.start(1) + k for m in calls for k in find_key_characters(m[1], names)})
        # (tokens,) end of each token in the text; a character lies in the first token that ends behind it
        ends = torch.tensor([len(part) for part in fit_texts(ctx.policy.token_texts(done.action.tolist()), text)])
        at = torch.searchsorted(ends.cumsum(0), torch.tensor(keys, dtype=torch.long), right=True)
        marked = torch.zeros(len(ends), dtype=torch.bool)
        marked[at[at < len(ends)]] = True
        return turn.with_columns(key_tokens=marked)


@dataclass(frozen=True)
class KeyTokenMean(Weighting):
    """Every row counts the same, and in it key tokens count w times: w = min(others / key tokens, max_weight).

    Where key tokens are not fewer than the others, w is 1. Source: TL-Training, 2024, section 4.2, arXiv:2412.15495.

    Args:
        max_weight: of a key token.
    """

    max_weight: float = 9.0

    def __post_init__(self) -> None:
        check_at_least(1, "data.weighting", max_weight=self.max_weight)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "key_tokens"})

    def __call__(self, batch: Batch, total: Total) -> Tensor:
        mask = batch["action_mask"].float()
        key = mask * batch["key_tokens"].float()
        # [N] weight of the key tokens of a row
        ratio = ((mask - key).sum(1) / key.sum(1).clamp(min=1)).clamp(1, self.max_weight)
        weights = mask + (ratio[:, None] - 1) * key
        rows = total((mask.sum(1) > 0).float().sum())
        return weights / weights.sum(1, keepdim=True).clamp(min=1) / rows.clamp(min=1)
