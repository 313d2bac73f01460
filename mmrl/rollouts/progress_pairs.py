"""Pairs of pictures from demonstrations as episodes: "how much of the rest of the way lies between these two?"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mmrl.rewards.progress import remaining_share, side_by_side
from mmrl.rng import derive_rng
from mmrl.rollouts.base import Rollout
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class ProgressPairs(Rollout):
    """Each decision shows two moments of one demonstration in either order; the answer is the share of what remained.

    Progress is time: moment t of a demonstration of n decisions is at t / (n - 1). Some pairs show a moment twice, or
    come with the instruction of a demonstration that has another one; their answer is 0.
    Source: Zhai et al., arXiv 2509.15937, section 3.

    Args:
        pairs: per demonstration.
        idle: share of the pairs that show one moment twice.
        other: share of the pairs with another demonstration's instruction.
    """

    samples = False

    def __init__(self, pairs: int = 4, idle: float = 0.1, other: float = 0.1):
        if pairs < 1 or min(idle, other) < 0 or idle + other > 1:
            raise ValueError(f"rollout: pairs >= 1 and idle + other in [0, 1], got {pairs}, {idle} and {other}")
        self.pairs, self.idle, self.other = pairs, idle, other

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        shown = [[raw for raw, _ in decisions] for decisions in ctx.task.demonstrations([p for _, p in prompts])]
        if shown and not {"image", "proprio", "instruction"} <= set(shown[0][0]):
            raise ValueError(
                f"rollout=progress_pairs needs demonstrations in a simulator with a camera; those of task "
                f"{ctx.task.name!r} show {sorted(shown[0][0])}"
            )
        told = sorted({str(raws[0]["instruction"]) for raws in shown})
        episodes = []
        for (slot, prompt), raws in zip(prompts, shown):
            rng = derive_rng(ctx.seed, "pairs", ctx.iteration, slot)
            turns = [Turn(self._completion(*self._pair(raws, told, rng), ctx)) for _ in range(self.pairs)]
            episodes.append(Episode(prompt, group=slot, sample_index=0, turns=turns, source="demo"))
        return episodes

    def _pair(
        self, raws: Sequence[Mapping[str, Any]], told: Sequence[str], rng: np.random.Generator
    ) -> tuple[dict[str, Any], float]:
        """A raw observation of two moments, and its answer."""
        kind, instruction = rng.random(), str(raws[0]["instruction"])
        start, end = (int(t) for t in rng.integers(len(raws), size=2))
        last = max(len(raws) - 1, 1)
        share = float(remaining_share(np.array(start / last), np.array(end / last)))
        if kind < self.idle:
            end, share = start, 0.0
        elif kind < self.idle + self.other:
            others = [text for text in told if text != instruction]
            instruction, share = (others[int(rng.integers(len(others)))], 0.0) if others else (instruction, share)
        pair = side_by_side(np.asarray(raws[start]["image"])[None], np.asarray(raws[end]["image"])[None])[0]
        nothing = np.zeros_like(np.asarray(raws[0]["proprio"], np.float32))
        return {"image": pair, "proprio": nothing, "instruction": instruction}, share

    @staticmethod
    def _completion(raw: dict[str, Any], share: float, ctx: Context) -> Completion:
        answer = np.array([[share]], np.float32)
        action = ctx.policy.encode_demonstration(raw, answer)
        return Completion(
            observation=ctx.policy.encode(raw),
            action=action,
            logprobs=torch.zeros(len(action)),
            mask=torch.ones(len(action), dtype=torch.bool),
            output=answer,
            extra={"temperature": torch.tensor(1.0)},
        )
