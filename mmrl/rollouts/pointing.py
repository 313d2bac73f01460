"""Labelled pictures as episodes: "point at the named object", auto-labelled by the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mmrl.rollouts.base import Rollout
from mmrl.rollouts.demonstrations import demonstration, seeded
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class Pointing(Rollout):
    """One decision per scene: the named object's place in the image, answered in the first two action dimensions.

    The answer is a chunk whose every step is (column, row) of the object's centroid in [-1, 1]; further dimensions
    are 0, and masked where choices are single numbers. The object's pixels are the column `target_mask`. It stands in
    for the grounding that a pretrained vision-language model brings along.

    Args:
        chunk: steps of the policy's answer.
        dims: action dimensions of each step, at least 2.
        least_pixels: scenes that show less of the object are left out.
        spread: how far each joint of the arm may stand from its start, rad.
    """

    writes = frozenset({"target_mask", "seed"})

    def __init__(self, chunk: int = 5, dims: int = 3, least_pixels: int = 8, spread: float = 0.3):
        if dims < 2:
            raise ValueError(f"rollout.dims must be at least 2 to name a place in an image, got {dims}")
        self.chunk, self.dims, self.least_pixels, self.spread = chunk, dims, least_pixels, spread

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        ctx.progress("scenes", 0, len(prompts))
        made = ctx.task.sim.scenes([prompt.info["seed"] for _, prompt in prompts], self.spread)
        ctx.progress("scenes", len(prompts), len(prompts))
        return [
            Episode(prompt, group=slot, attempt=0, turns=self._turns(made, i, slot, ctx), source="demo")
            for i, (slot, prompt) in enumerate(prompts)
            if made["mask"][i].sum() >= self.least_pixels
        ]

    def _turns(self, made: dict[str, Any], i: int, slot: int, ctx: Context) -> list[Turn]:
        return seeded([self._completion(made, i, ctx)], slot, ctx)

    def _completion(self, made: dict[str, Any], i: int, ctx: Context) -> Completion:
        raw = {name: made[name][i] for name in ("image", "proprio", "instruction")}
        size = made["mask"].shape[1]
        answer = np.zeros((self.chunk, self.dims), dtype=np.float32)
        answer[:, :2] = made["centroid"][i] / (size / 2) - 1
        taught = np.zeros((self.chunk, self.dims), dtype=bool)
        taught[:, :2] = True
        completion = demonstration(raw, answer, ctx, taught)
        completion.extra["target_mask"] = torch.from_numpy(made["mask"][i])
        return completion
