"""EAG-RL: reward an expert's salient features, and widen the clip range with the entropy at their tokens.

Toward Better EHR Reasoning in LLMs: Reinforcement Learning with Expert Attention Guidance, 2025, arXiv:2508.13579.

- tokens that name salient features: `mark_mentions`, `FeatureMask`
- the upper clip range of a completion by its entropy at them: `adaptive_clip`, `AdaptiveClip`
- the loss: `AdaptiveSurrogate`; the reward is a weighted sum of a task's scores
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.columns import COLLATED, Column, register_columns
from mmrl.core.errors import check_fraction
from mmrl.core.types import Context, Episode, PolicyOutput, Turn
from mmrl.objectives.policy import PolicyGradientTerm
from mmrl.ops.masked import masked_mean
from mmrl.transforms.base import EpisodeTransform

register_columns(
    {
        "feature_mask": Column("[N, T]", "bool", "EAG-RL: tokens that name a feature which an expert finds salient"),
        "clip_high": Column(
            "[N]", "1", "EAG-RL: upper clip range of the row's importance ratios: they are clipped at 1 + it"
        ),
    }
)


def mark_mentions(ids: Tensor, names: Sequence[str], decode: Callable[[list[int]], str]) -> Tensor:
    """[T] bool: tokens of a completion with a character of one of the names, as whole words."""
    tokens = ids.tolist()
    ends = [len(decode(tokens[: k + 1])) for k in range(len(tokens))]
    marked = torch.zeros(len(tokens), dtype=torch.bool)
    pattern = "|".join(rf"\b{re.escape(name)}\b" for name in names)
    for match in re.finditer(pattern, decode(tokens)) if pattern else ():
        for k, (start, end) in enumerate(zip([0, *ends], ends)):
            marked[k] |= start < match.end() and end > match.start()
    return marked


@dataclass(frozen=True)
class FeatureMask(EpisodeTransform):
    """Write `feature_mask`: the tokens of a completion that name one of the expert's features.

    Args:
        column: of the task's prompts with the names, as `Prompt.info` has it.
    """

    column: str = "salient"

    def writes(self) -> frozenset[str]:
        return frozenset({"feature_mask"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(e, turns=[self._mark(turn, e, ctx) for turn in e.turns]) for e in episodes]

    def _mark(self, turn: Turn, episode: Episode, ctx: Context) -> Turn:
        if self.column not in episode.prompt.info:
            raise KeyError(
                f"feature_mask.column={self.column!r}: {episode.prompt.key!r} has {sorted(episode.prompt.info)} alone; "
                "take a task that names salient features, such as task=records"
            )
        marked = mark_mentions(turn.completion.action, episode.prompt.info[self.column], ctx.policy.decode)
        return turn.with_columns(feature_mask=marked & turn.completion.action_mask)


def adaptive_clip(entropy: Tensor, least: float, most: float, clip_min: float, clip_max: float) -> Tensor:
    """[N] upper clip range of entropies [N]: clip_min at the least, clip_max at the most, linear between them.

    clip_min where both are equal. Source: EAG-RL, 2025, arXiv:2508.13579.
    """
    share = (entropy - least) / (most - least) if most > least else torch.zeros_like(entropy)
    return clip_min + (clip_max - clip_min) * share


@dataclass(frozen=True)
class AdaptiveClip(ForwardAnnotator):
    """Write `clip_high`: the upper clip range of a row by its mean entropy where it names features, before the update.

    `adaptive_clip` over the rows of all processes that name one; rows without get `clip_min`. Source: EAG-RL, 2025,
    arXiv:2508.13579.

    Args:
        clip_min: of the most certain row.
        clip_max: of the least certain row.
    """

    clip_min: float = 0.2
    clip_max: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.clip_min <= self.clip_max:
            raise ValueError(f"adaptive_clip: need 0 <= clip_min <= clip_max, got {self.clip_min} and {self.clip_max}")

    def reads(self) -> frozenset[str]:
        return COLLATED | {"feature_mask"}

    def writes(self) -> frozenset[str]:
        return frozenset({"clip_high"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["feature_mask"] & batch["action_mask"]
        entropy = masked_mean(
            score_rows(ctx.policy, batch, lambda out: out.entropy, self.rows, ctx.device), mask, dim=1
        )
        has_mention = mask.any(1)
        everyone = ctx.collector.gather(entropy[has_mention].tolist())
        if not everyone:
            return batch.with_columns(clip_high=torch.full_like(entropy, self.clip_min))
        clip_high = adaptive_clip(entropy, min(everyone), max(everyone), self.clip_min, self.clip_max)
        return batch.with_columns(clip_high=torch.where(has_mention, clip_high, self.clip_min))


@dataclass(frozen=True)
class AdaptiveSurrogate(PolicyGradientTerm):
    """Clipped surrogate of PPO with an upper clip range for each row: the column `clip_high`.

    loss = max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high_n)). Source: EAG-RL, 2025, arXiv:2508.13579.

    Args:
        clip_low: the ratio is clipped at 1 - clip_low.
    """

    clip_low: float = 0.2

    def __post_init__(self) -> None:
        check_fraction("adaptive_surrogate", clip_low=self.clip_low)

    def reads(self) -> frozenset[str]:
        return super().reads() | {"clip_high"}

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ratio, advantages = self.ratio(out, batch), self.advantages(batch)
        clipped = torch.minimum(ratio.clamp(min=1 - self.clip_low), 1 + batch["clip_high"][:, None])
        return torch.maximum(-advantages * ratio, -advantages * clipped)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio; clip_fraction: choices without a gradient; clip_high: the upper clip range."""
        ratio, advantages = self.ratio(out, batch), self.advantages(batch)
        high = batch["clip_high"][:, None].expand_as(ratio)
        cut = ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - self.clip_low))
        return {"ratio": ratio, "clip_fraction": cut.to(ratio.dtype), "clip_high": high}
