"""Image pairs from demonstrations, labelled with the progress between the two frames (VLAC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.rewards.models.progress import concat_images, remaining_share
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration


class ProgressPairs(Rollout):
    """Each decision shows two moments of one demonstration in either order; the answer is the share of what remained.

    Progress is time: moment t of a demonstration of n decisions is at t / (n - 1). Some pairs show a moment twice, or
    come with the instruction of a demonstration that has another one; their answer is 0.
    Source: Zhai et al., arXiv 2509.15937, section 3.

    Args:
        num_pairs: per demonstration.
        identical_fraction: of the pairs that show one moment twice.
        mismatched_fraction: of the pairs with the instruction of another demonstration.
    """

    samples = False

    def __init__(self, num_pairs: int = 4, identical_fraction: float = 0.1, mismatched_fraction: float = 0.1):
        fractions = (identical_fraction, mismatched_fraction)
        if num_pairs < 1 or min(fractions) < 0 or sum(fractions) > 1:
            raise ValueError(
                "rollout: num_pairs >= 1 and identical_fraction + mismatched_fraction in [0, 1], "
                f"got {num_pairs}, {identical_fraction} and {mismatched_fraction}"
            )
        self.num_pairs, self.identical_fraction, self.mismatched_fraction = num_pairs, *fractions

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        observations = [[raw for raw, _ in decisions] for decisions in ctx.task.demonstrations([p for _, p in prompts])]
        if observations and not {"image", "proprio", "instruction"} <= set(observations[0][0]):
            raise ValueError(
                f"rollout=progress_pairs needs demonstrations in a simulator with a camera; those of task "
                f"{ctx.task.name!r} show {sorted(observations[0][0])}"
            )
        instructions = sorted({str(raws[0]["instruction"]) for raws in observations})
        episodes = []
        for (slot, prompt), raws in zip(prompts, observations):
            rng = derive_rng(ctx.seed, "pairs", ctx.iteration, slot)
            pairs = [self._pair(raws, instructions, rng) for _ in range(self.num_pairs)]
            turns = [Turn(demonstration(raw, np.array([[share]], np.float32), ctx)) for raw, share in pairs]
            episodes.append(Episode(prompt, group=slot, sample_index=0, turns=turns, source="demo"))
        return episodes

    def _pair(
        self, raws: Sequence[Mapping[str, Any]], instructions: Sequence[str], rng: np.random.Generator
    ) -> tuple[dict[str, Any], float]:
        """A raw observation of two moments, and its answer."""
        kind, instruction = rng.random(), str(raws[0]["instruction"])
        start, end = (int(t) for t in rng.integers(len(raws), size=2))
        last = max(len(raws) - 1, 1)
        share = float(remaining_share(np.array(start / last), np.array(end / last)))
        if kind < self.identical_fraction:
            end, share = start, 0.0
        elif kind < self.identical_fraction + self.mismatched_fraction:
            others = [text for text in instructions if text != instruction]
            instruction, share = (others[int(rng.integers(len(others)))], 0.0) if others else (instruction, share)
        pair = concat_images(np.asarray(raws[start]["image"])[None], np.asarray(raws[end]["image"])[None])[0]
        nothing = np.zeros_like(np.asarray(raws[0]["proprio"], np.float32))
        return {"image": pair, "proprio": nothing, "instruction": instruction}, share
