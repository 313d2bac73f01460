"""Pointing data as demonstrations: images labelled by the simulator with the named objects' pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstration


class PointingDemonstrations(Rollout):
    """One decision per scene: the places of the named objects in the image, in the first two action dimensions.

    Step h of the answer is (column, row) in [-1, 1] of the centroid of object h mod M, of the M that the instruction
    names in order; further dimensions are 0, and masked where choices are single numbers. The objects' pixels are the
    column `target_mask`. It stands in for the grounding that a pretrained vision-language model brings along: what it
    leaves out, the goal of a push say, a policy whose vision is then frozen cannot see.

    Args:
        chunk: steps of the policy's answer.
        dims: action dimensions of each step, at least 2.
        least_pixels: scenes that show less of an object are left out.
        joint_noise: how far each joint of the arm may stand from its start, rad.
    """

    samples = False

    def __init__(self, chunk: int = 5, dims: int = 3, least_pixels: int = 8, joint_noise: float = 0.3):
        if dims < 2:
            raise ValueError(f"rollout.dims must be at least 2 to name a place in an image, got {dims}")
        self.chunk, self.dims, self.least_pixels, self.joint_noise = chunk, dims, least_pixels, joint_noise

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"target_mask", "row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        sim = getattr(ctx.task, "sim", None)
        if not hasattr(sim, "label_images"):
            raise ValueError(
                f"rollout=pointing needs a simulator with labelled images, and task {ctx.task.name!r} has none; "
                "use task=sim with one of the tabletop, as sim=reach"
            )
        ctx.progress("labelled images", 0, len(prompts))
        images = sim.label_images([prompt.info["seed"] for _, prompt in prompts], self.joint_noise)  # type: ignore[union-attr]
        ctx.progress("labelled images", len(prompts), len(prompts))
        return [
            Episode(prompt, group=slot, sample_index=0, turns=self._turns(images, i, slot, ctx), source="demo")
            for i, (slot, prompt) in enumerate(prompts)
            if images["masks"][i].sum(axis=(1, 2)).min() >= self.least_pixels
        ]

    def _turns(self, images: dict[str, Any], i: int, slot: int, ctx: Context) -> list[Turn]:
        return add_row_seeds([Turn(self._completion(images, i, ctx))], slot, ctx)

    def _completion(self, images: dict[str, Any], i: int, ctx: Context) -> Completion:
        raw = {name: images[name][i] for name in ("image", "proprio", "instruction")}
        centroids, size = images["centroids"][i], images["masks"].shape[2]
        answer = np.zeros((self.chunk, self.dims), dtype=np.float32)
        answer[:, :2] = centroids[np.arange(self.chunk) % len(centroids)] / (size / 2) - 1
        valid = np.zeros((self.chunk, self.dims), dtype=bool)
        valid[:, :2] = True
        completion = demonstration(raw, answer, ctx, valid)
        completion.extra["target_mask"] = torch.from_numpy(images["masks"][i])
        return completion
