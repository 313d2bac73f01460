"""Rollout of expert demonstrations, for behaviour cloning and supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Observation, Prompt, Turn
from mmrl.rollouts.base import Rollout


class Demonstrations(Rollout):
    """The task's own expert answers every prompt once; its choices carry log-probability zero.

    Args:
        cache_episodes: keep the encoded demonstrations in memory, for small sets that are used many times.
    """

    samples = False
    imitates_answers = True

    def __init__(self, cache_episodes: bool = False):
        self.cache_episodes = cache_episodes
        self._cache: dict[str, list[Turn]] = {}

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        cache = dict(self._cache) if self.cache_episodes else {}
        missing = [prompt for _, prompt in prompts if prompt.key not in cache]
        for prompt, decisions in zip(missing, ctx.task.demonstrations(missing) if missing else []):
            turns = [Turn(self.encode(raw, output, ctx)) for raw, output in decisions]
            cache[prompt.key] = cache_observations(turns, ctx) if self.cache_episodes else turns
        if self.cache_episodes:
            self._cache = cache
        return [
            Episode(
                prompt, group=slot, sample_index=0, turns=add_row_seeds(cache[prompt.key], slot, ctx), source="demo"
            )
            for slot, prompt in prompts
        ]

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        """Encode one decision of the expert."""
        return demonstration(raw, output, ctx)


def demonstration(
    raw: Mapping[str, Any],
    output: Any,
    ctx: Context,
    valid: np.ndarray | None = None,
) -> Completion:
    """Encode an expert's decision as a completion of the policy.

    Args:
        raw: what it saw.
        output: what it did: a text, or a chunk [H, A].
        ctx: of the iteration.
        valid: bool [H, A], the entries of a chunk that mean something; all by default.
    """
    action = ctx.policy.encode_demonstration(raw, output)
    if isinstance(output, str):
        output = ctx.policy.write_turn(raw, output)  # with its calls and reasoning, as the policy's own completions
    return demonstrated_choices(action, ctx.policy.encode(raw), output, None if valid is None else _mask(action, valid))


def demonstrated_choices(
    action: Tensor, observation: Observation, output: Any, mask: Tensor | None = None
) -> Completion:
    """Encoded choices [T] of an expert as a completion: log-probabilities 0, temperature 1, learned inside the mask."""
    return Completion(
        observation=observation,
        action=action,
        behavior_logprobs=torch.zeros(len(action)),
        action_mask=torch.ones(len(action), dtype=torch.bool) if mask is None else mask,
        output=output,
        extra={"temperature": torch.tensor(1.0)},
    )


def cache_observations(turns: Sequence[Turn], ctx: Context) -> list[Turn]:
    """Return the turns with cached outputs of the policy's frozen encoder, so that later iterations reuse them."""
    policy, done = ctx.policy, [turn.completion for turn in turns]
    if not policy.cached_inputs:
        return list(turns)
    columns = Batch(policy.collate([completion.observation for completion in done]))
    cached_features = policy.cache_features({name: column.to(policy.device) for name, column in columns.items()})
    rows = {name: column.cpu() for name, column in cached_features.items()}
    out = []
    for i, (turn, completion) in enumerate(zip(turns, done)):
        rest = {name: part for name, part in completion.observation.items() if name not in policy.cached_inputs}
        observation = rest | {name: column[i] for name, column in rows.items()}
        out.append(replace(turn, completion=replace(completion, observation=observation)))
    return out


def add_row_seeds(turns: Sequence[Turn], slot: int, ctx: Context) -> list[Turn]:
    """Return the turns of one episode, each with the seed of its training noise, new in every iteration."""
    key = (ctx.seed, ctx.purpose, "learn", ctx.iteration, slot)
    out = []
    for step, turn in enumerate(turns):
        seed = torch.tensor(derive_seed(*key, step) >> 1)  # fits int64
        done = turn.completion
        out.append(replace(turn, completion=replace(done, extra={**done.extra, "row_seed": seed})))
    return out


def _mask(action: Tensor, valid: np.ndarray) -> Tensor:
    """[T] of the entries [H, A]: ids are entries, real choices are control steps."""
    entries = torch.from_numpy(valid)
    return entries.flatten() if action.dim() == 1 else entries.any(dim=1)
