"""Episodes with tools that an expert plays: its turns are the task's, the tools answer them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mmrl.rollouts.demonstrations import seeded
from mmrl.rollouts.tools import Play, ToolUse
from mmrl.tools.base import Tool
from mmrl.tools.markup import Markup
from mmrl.types import Completion, Context, Episode, Observation, Prompt, Sampling


class ToolDemonstrations(ToolUse):
    """Every prompt once, played by the task's script; what the tools answer is read and not learnt.

    Args:
        tools: as for ToolUse, and so are markup and turns.
        markup: how the script writes its calls.
        turns: calls that are served.
        keep: remember each prompt's demonstration, for small sets that are learnt from many times.
    """

    writes = frozenset({"seed"})

    def __init__(self, tools: dict[str, Tool], markup: Markup | None = None, turns: int = 4, keep: bool = False):
        super().__init__(tools, markup, turns)
        self.keep = keep
        self._kept: dict[str, Episode] = {}

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        known = dict(self._kept) if self.keep else {}
        wanted = [(slot, prompt) for slot, prompt in prompts if prompt.key not in known]
        for episode in super().collect(wanted, replace(ctx, group_size=1)):
            known[episode.prompt.key] = replace(episode, source="demo")
        if self.keep:
            self._kept = known
        return [
            replace(known[prompt.key], group=slot, turns=seeded(known[prompt.key].turns, slot, ctx))
            for slot, prompt in prompts
        ]

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
        ids = ctx.policy.encode_demonstration(play.script.raw, text) if last else ctx.policy.tokenize(text)
        return Completion(
            observation=seen,
            action=ids,
            logprobs=torch.zeros(len(ids)),
            mask=torch.ones(len(ids), dtype=torch.bool),
            output=text,
            extra={"temperature": torch.tensor(1.0)},
        )
