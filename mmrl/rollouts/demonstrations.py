"""Episodes that an expert plays: cloning and supervised fine-tuning are the same iteration with this rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.rng import derived_seed
from mmrl.rollouts.base import Rollout
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class Demonstrations(Rollout):
    """The task's own expert answers every prompt once; its choices carry log-probability zero.

    Args:
        keep: remember each prompt's demonstration, for small sets that are learnt from many times.
    """

    writes = frozenset({"seed"})

    def __init__(self, keep: bool = False):
        self.keep = keep
        self._kept: dict[str, list[Completion]] = {}

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        known = dict(self._kept) if self.keep else {}
        wanted = [prompt for _, prompt in prompts if prompt.key not in known]
        for prompt, decisions in zip(wanted, ctx.task.demonstrations(wanted) if wanted else []):
            known[prompt.key] = [demonstration(raw, output, ctx) for raw, output in decisions]
        if self.keep:
            self._kept = known
        return [
            Episode(prompt, group=slot, attempt=0, turns=seeded(known[prompt.key], slot, ctx), source="demo")
            for slot, prompt in prompts
        ]


def demonstration(
    raw: Mapping[str, Any],
    output: Any,
    ctx: Context,
    taught: np.ndarray | None = None,
) -> Completion:
    """What an expert did as a completion of the policy.

    Args:
        raw: what it saw.
        output: what it did: a text, or a chunk [H, A].
        ctx: of the iteration.
        taught: bool [H, A], the entries of a chunk that mean something; all by default.
    """
    action = ctx.policy.imitate(raw, output)
    return Completion(
        observation=ctx.policy.encode(raw),
        action=action,
        logprobs=torch.zeros(len(action)),
        mask=torch.ones(len(action), dtype=torch.bool) if taught is None else _mask(action, taught),
        output=output,
        extra={"temperature": torch.tensor(1.0)},
    )


def seeded(completions: Sequence[Completion], slot: int, ctx: Context) -> list[Turn]:
    """Turns of one episode, each with the seed of what learning draws for it; another one in every iteration."""
    key = (ctx.seed, ctx.purpose, "learn", ctx.iteration, slot)
    return [
        Turn(replace(done, extra={**done.extra, "seed": torch.tensor(derived_seed(*key, step) >> 1)}))  # fits int64
        for step, done in enumerate(completions)
    ]


def _mask(action: Tensor, taught: np.ndarray) -> Tensor:
    """[T] of the entries [H, A]: ids are entries, real choices are control steps."""
    entries = torch.from_numpy(taught)
    return entries.flatten() if action.dim() == 1 else entries.any(dim=1)
