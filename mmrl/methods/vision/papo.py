"""PAPO: a second context of each answer, whose images have black patches, for the implicit perception loss.

PAPO: Perception-Aware Policy Optimization for Multimodal Reasoning, 2025, section 3, arXiv:2507.06448.

- images with black patches: `BlackPatches`
- the answers in that context: `OtherContext`
- implicit perception divergence: `KL(context=...)` with a negative coefficient
- double entropy: `NegativeLogLikelihood` in both contexts
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Turn
from mmrl.transforms.base import EpisodeTransform


class Change(ABC):
    """Turns one raw observation into another."""

    @abstractmethod
    def __call__(self, raw: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]: ...


@dataclass(frozen=True)
class BlackPatches(Change):
    """Set random square patches of every image to black, each patch independently.

    Source: Perception-Aware Policy Optimization, 2025, section 3, arXiv:2507.06448.

    Args:
        mask_ratio: probability of each patch.
        patch_size: pixels of its side; patches at the right and lower edge may be cut.
    """

    mask_ratio: float = 0.6
    patch_size: int = 14

    def __post_init__(self) -> None:
        check_fraction("black_patches", mask_ratio=self.mask_ratio)
        check_at_least(1, "black_patches", patch_size=self.patch_size)

    def __call__(self, raw: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        if not raw.get("images"):
            raise ValueError("black_patches: the prompt has no images to hide; it needs a task with images")
        return {**raw, "images": tuple(self._mask_image(image, rng) for image in raw["images"])}

    def _mask_image(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        height, width = image.shape[:2]
        black = rng.random((-(-height // self.patch_size), -(-width // self.patch_size))) < self.mask_ratio
        pixels = black.repeat(self.patch_size, 0).repeat(self.patch_size, 1)[:height, :width]
        return np.where(pixels[..., None], 0, image).astype(image.dtype)


@dataclass(frozen=True)
class OtherContext(EpisodeTransform):
    """Add a second context to every answer, equal for all episodes of a prompt and new in every iteration.

    Terms and annotators take it by its name, as in `KL(context="blind")` or `Logprobs(column=..., context="blind")`. It
    is for policies whose rows are whole answers.

    Args:
        name: of the context.
        change: from the prompt's observation to that of the context.
    """

    name: str
    change: Change

    def contexts(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out = []
        for slot, group in group_episodes(episodes).items():
            rng = derive_rng(ctx.seed, ctx.purpose, "context", self.name, ctx.iteration, slot)
            observation = ctx.policy.encode(self.change(group[0].prompt.observation, rng))
            out += [replace(episode, turns=self._turns(episode, observation)) for episode in group]
        return out

    def _turns(self, episode: Episode, observation: dict[str, Any]) -> list[Turn]:
        if len(episode.turns) > 1:
            raise ValueError(
                f"data.transforms gives context {self.name!r} to answers of one row, but the episode of "
                f"{episode.prompt.key!r} has {len(episode.turns)}"
            )
        return [
            replace(
                turn, completion=replace(turn.completion, others={**turn.completion.others, self.name: observation})
            )
            for turn in episode.turns
        ]
