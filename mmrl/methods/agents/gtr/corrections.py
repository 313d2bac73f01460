"""GTR: the DAgger buffer of corrected thoughts, and the columns that mark the thought tokens of a turn.

- which tokens are the thought, and the reward of the format: `ThoughtColumns`
- corrected thoughts of all iterations, imitated beside the policy's own turns: `CorrectedThoughts`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import FIRST_ADDED_GROUP, Context, Episode, Turn
from mmrl.rollouts.offline.demonstrations import demonstrated_choices
from mmrl.transforms.base import EpisodeTransform, StatefulTransform
from mmrl.transforms.steps import fit_texts


def thought_length(tokens: Sequence[str], marker: str) -> int:
    """Number of tokens up to the one that completes the last marker; 0 without a marker."""
    text, count, length = "", 0, 0
    for position, token in enumerate(tokens, start=1):
        text += token
        if text.count(marker) > count:
            count, length = text.count(marker), position
    return length


@dataclass(frozen=True)
class ThoughtColumns(EpisodeTransform):
    """Write `segment`, 0 for tokens of the thought and its marker and 1 for later ones, and the reward of the format.

    `token_rewards` is `format_bonus` at the last token of a turn with a thought and an action around the marker, and 0
    elsewhere. Source: GTR, 2025, arXiv:2503.08525.

    Args:
        format_bonus: reward of the format; the paper's script has half the reward of success.
        marker: as of the rollout.
    """

    format_bonus: float = 0.5
    marker: str = ":"

    def writes(self) -> frozenset[str]:
        return frozenset({"segment", "token_rewards"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(e, turns=[self._add(turn, ctx) for turn in e.turns]) for e in episodes]

    def _add(self, turn: Turn, ctx: Context) -> Turn:
        ids = turn.completion.action.tolist()
        text = ctx.policy.decode(ids)
        length = thought_length(fit_texts(ctx.policy.token_texts(ids), text), self.marker)
        thought, marker, action = text.rpartition(self.marker)
        rewards = torch.zeros(len(ids))
        rewards[-1:] = self.format_bonus * bool(thought.strip() and marker and action.strip())
        return turn.with_columns(segment=(torch.arange(len(ids)) >= length).long(), token_rewards=rewards)


@dataclass(frozen=True)
class CorrectedThoughts(StatefulTransform):
    """Aggregate corrected thoughts over iterations (DAgger), and add a uniform draw of them as demonstrations.

    Each is a row of its own that is `is_demo`: the observation of the turn that was corrected, and the right thought
    with its marker; actions are not imitated. Train it with `NegativeLogLikelihood` under `objective.row_masks`. The
    policy's own turns stay as they are. It comes after `ThoughtColumns`. Source: GTR, 2025, arXiv:2503.08525; DAgger,
    2011, arXiv:1011.0686.

    Args:
        samples: thoughts that are imitated in an iteration, over all processes.
        capacity: corrections in the buffer; the oldest leave first.
        marker: as of the rollout.
    """

    samples: int = 128
    capacity: int = 4096
    marker: str = ":"
    _buffer: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        check_at_least(1, "corrected_thoughts", samples=self.samples, capacity=self.capacity)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        local_thoughts = [
            ((e.group, e.sample_index, step), self._encode(e, step, right, ctx))
            for e in episodes
            for step, right in enumerate(e.info.get("corrections", [])[: len(e.turns)])
            if right is not None
        ]
        self._buffer.extend(
            entry for _, entry in sorted(ctx.collector.gather(local_thoughts), key=lambda pair: pair[0])
        )
        del self._buffer[: -self.capacity]
        draw = derive_rng("corrected_thoughts", ctx.seed, ctx.iteration).permutation(len(self._buffer))
        entries = list(enumerate(draw[: self.samples].tolist()))[ctx.rank :: ctx.world_size]
        return [*episodes, *(self._demonstrate(place, self._buffer[number], ctx) for place, number in entries)]

    def _encode(self, episode: Episode, step: int, right: str, ctx: Context) -> dict[str, Any]:
        observation: Mapping[str, Tensor] = episode.turns[step].completion.observation
        return {
            "index": episode.prompt.index,
            "observation": dict(observation),
            "thought": ctx.policy.tokenize(right + self.marker),
        }

    def _demonstrate(self, place: int, entry: Mapping[str, Any], ctx: Context) -> Episode:
        ids = entry["thought"]
        turn = Turn(demonstrated_choices(ids, dict(entry["observation"]), ctx.policy.decode(ids.tolist())))
        turn = turn.with_columns(segment=torch.zeros_like(ids), token_rewards=torch.zeros(len(ids)))
        return Episode(ctx.task[entry["index"]], FIRST_ADDED_GROUP + place, 0, [turn], source="demo")

    def state_dict(self) -> dict[str, Any]:
        return {"buffer": list(self._buffer)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._buffer[:] = state["buffer"]
