"""RLGF: mix a guide and the policy in one completion: the guide rolls in (PPO++) or rolls out (AggreVaTeD).

Learning to Generate Better Than Your LLM, 2023, arXiv:2306.11816, algorithms 1 to 3.

- roll in with one policy, roll out with the other: `GuidedRollout`
- values of the states of the roll-out: `RollOutValue`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Completion, Context, Ended, Episode, PolicyOutput, Prompt, Request, Turn
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean, zero_outside
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.forced import surround
from mmrl.rollouts.text.joined import truncate


class GuidedRollout(Rollout):
    """Single-turn completions: of guide and policy one writes the first t tokens (roll-in), the other one the rest.

    With probability `mixing` t is uniform in 1, ..., length of the roll-in - 1, otherwise 0. In an iteration of PPO++
    the guide rolls in and the policy rolls out, in one of AggreVaTeD the policy rolls in and the guide rolls out. Only
    the policy's tokens are trained; `value_mask` marks those of the roll-out, from t on, whose states the value
    function is fitted in. With mixing=0 PPO++ is PPO.

    `ppo_fraction` 1 is PPO++ in every iteration, 0 AggreVaTeD, 0.8 LOLS; a schedule from 0 to 1 is D2LOLS. The guide
    is one of `model.frozen_models`, sampled by the engine with the settings of `data.sampling`.

    Source: Learning to Generate Better Than Your LLM, 2023, algorithms 1 to 3, arXiv:2306.11816.

    Args:
        mixing: the paper's beta.
        ppo_fraction: probability that an iteration is one of PPO++.
        guide: name of the guide in `model.frozen_models`.
    """

    def __init__(self, mixing: float = 0.8, ppo_fraction: float = 1.0, guide: str = "guide"):
        check_fraction("rollout", mixing=mixing, ppo_fraction=ppo_fraction)
        self.mixing, self.ppo_fraction, self.guide = mixing, ppo_fraction, guide

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.guide})

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"value_mask"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        rows = [_Row(slot, prompt, index, ctx) for slot, prompt in prompts for index in ctx.sample_indices(slot)]
        guide_first = derive_rng("roll_in", ctx.seed, ctx.purpose, ctx.iteration).random() < self.ppo_fraction
        mixed = [row for row in rows if row.draw.random() < self.mixing]
        ctx.progress("rollout", 0, len(rows))
        (self._guide_first if guide_first else self._policy_first)(rows, mixed, ctx)
        ctx.progress("rollout", len(rows), len(rows))
        return [row.episode(ctx) for row in rows]

    def _guide_first(self, rows: Sequence[_Row], mixed: Sequence[_Row], ctx: Context) -> None:
        """PPO++: the guide writes the first t tokens of some rows, the policy all others."""
        for row, done in zip(mixed, self._ask_guide([row.request("guide") for row in mixed], ctx)):
            row.before = done.action[: row.draw_length(len(done.action))]
        for row, done in zip(
            rows, ctx.engine.sample([row.request("policy", row.before) for row in rows], ctx.sampling)
        ):
            row.chosen = truncate(done, ctx.sampling.max_tokens - len(row.before))
            row.ended = row.chosen.ended

    def _policy_first(self, rows: Sequence[_Row], mixed: Sequence[_Row], ctx: Context) -> None:
        """AggreVaTeD: the policy writes the first t tokens, the guide all others."""
        mixed_ids = {id(row) for row in mixed}
        for row, done in zip(rows, ctx.engine.sample([row.request("policy") for row in rows], ctx.sampling)):
            row.chosen = truncate(done, row.draw_length(len(done.action)) if id(row) in mixed_ids else 0)
        requests = [row.request("guide", row.chosen.action) for row in rows]
        for row, done in zip(rows, self._ask_guide(requests, ctx)):
            done = truncate(done, ctx.sampling.max_tokens - len(row.chosen.action))
            row.after, row.ended, row.rolled_out_by_guide = done.action, done.ended, True

    def _ask_guide(self, requests: Sequence[Request], ctx: Context) -> list[Completion]:
        guide_requests = [replace(request, model=self.guide) for request in requests]
        return ctx.engine.sample(guide_requests, ctx.sampling) if guide_requests else []


class _Row:
    """One completion: the policy's tokens, and the guide's ids before and after them."""

    def __init__(self, slot: int, prompt: Prompt, sample_index: int, ctx: Context):
        self.slot, self.prompt, self.sample_index, self.ctx = slot, prompt, sample_index, ctx
        self.draw = derive_rng("guided", ctx.seed, ctx.purpose, ctx.iteration, slot, sample_index)
        self.before, self.after = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
        self.chosen: Completion
        self.ended: Ended = "done"
        self.rolled_out_by_guide = False

    def draw_length(self, length: int) -> int:
        """Draw t from 1 to length - 1; 0 where there is no such number."""
        return int(self.draw.integers(1, length)) if length > 1 else 0

    def request(self, by: str, prefix: Tensor | None = None) -> Request:
        """Request tokens after a prefix; without one the policy's request is that of a single-turn rollout."""
        seed = turn_seed(self.slot, self.sample_index, self.ctx)
        if by == "guide":
            seed = derive_seed("guide", seed)
        prompt_id = (self.slot, self.ctx.sample_indices(self.slot).start)
        forced_ids = prefix if prefix is not None and len(prefix) else None
        return Request(text_observation(self.prompt), seed, forced_ids, prompt_id)

    def episode(self, ctx: Context) -> Episode:
        # t, the first token of the roll-out: after the forced prefix, or after the policy's tokens
        t = len(self.before) + (len(self.chosen.action) if self.rolled_out_by_guide else 0)
        ids = torch.cat([self.before, self.chosen.action, self.after])
        text = ctx.policy.decode(ids.tolist()) if len(self.before) or len(self.after) else self.chosen.output
        observation = ctx.policy.encode(text_observation(self.prompt)) if len(self.before) else self.chosen.observation
        prompt_id = (self.slot, ctx.sample_indices(self.slot).start)
        done = replace(self.chosen, observation=observation, ended=self.ended, prompt_id=prompt_id)
        done = surround(done, self.before, self.after, text)
        done.extra["value_mask"] = torch.arange(len(ids)) >= t
        episode = Episode(self.prompt, self.slot, self.sample_index, [Turn(done)], ended=done.ended)
        episode.info["roll_in"] = t
        return episode


@dataclass(frozen=True)
class RollOutValue(Term):
    """Half the squared error of the value in the states of the roll-out, per row: mean over `value_mask`.

    0.5 (v - R)^2 with R the episode's reward: undiscounted Monte Carlo returns. The row's weight is taken; rows without
    a token of the policy have none. Source: Learning to Generate Better Than Your LLM, 2023, section 4,
    arXiv:2306.11816.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"value_mask", "episode_reward"})

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if out.values is None or out.values.dim() != 2:
            raise ValueError(
                "roll_out_value: the policy predicts no values per token; set model.policy.value_head=true"
            )
        mask = batch["value_mask"]
        error = zero_outside(out.values - batch["episode_reward"][:, None], mask)
        return 0.5 * masked_mean(error.square(), mask, dim=1)
