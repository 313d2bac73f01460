"""Episodes with tools that an expert plays: its turns are the task's, the tools answer them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mmrl.rng import derived_seed
from mmrl.rollouts.tools import Play, ToolUse
from mmrl.types import Completion, Context, Episode, Observation, Prompt, Sampling


class ToolDemonstrations(ToolUse):
    """Every prompt once, played by the task's script; what the tools answer is read and not learnt. See ToolUse."""

    writes = frozenset({"seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, ctx)
        for episode in episodes:
            episode.source = "demo"
        return episodes

    def sample(self, ready: Sequence[Play], ctx: Context, sampling: Sampling) -> list[Completion]:
        return [self._shown(play, ctx) for play in ready]

    def _shown(self, play: Play, ctx: Context) -> Completion:
        prompt, turn = play.episode.prompt, play.script.turns
        turns = ctx.task.script(prompt.index)
        text = turns[min(turn, len(turns) - 1)]
        known = play.script.known
        seen: Observation = known[id(play.script.raw)] if turn else ctx.policy.encode(play.script.raw)
        # only the answer ends with the end of the text
        last = turn >= len(turns) - 1
        ids = ctx.policy.imitate(play.script.raw, text) if last else ctx.policy.tokens(text)
        seed = derived_seed(ctx.seed, ctx.purpose, "learn", ctx.iteration, play.episode.group, play.episode.attempt)
        return Completion(
            observation=seen,
            action=ids,
            logprobs=torch.zeros(len(ids)),
            mask=torch.ones(len(ids), dtype=torch.bool),
            output=text,
            extra={"temperature": torch.tensor(1.0), "seed": torch.tensor(seed >> 1)},
        )
