"""Episodes that an expert plays: cloning and supervised fine-tuning are the same iteration with this rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mmrl.rollouts.base import Rollout
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class Demonstrations(Rollout):
    """The task's own expert answers every prompt once; its choices carry log-probability zero.

    Args:
        keep: remember each prompt's demonstration, for small sets that are learnt from many times.
    """

    def __init__(self, keep: bool = False):
        self.keep = keep
        self._kept: dict[str, list[Turn]] = {}

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        turns = {key: value for key, value in self._kept.items()} if self.keep else {}
        wanted = [prompt for _, prompt in prompts if prompt.key not in turns]
        for prompt, decisions in zip(wanted, ctx.task.demonstrations(wanted) if wanted else []):
            turns[prompt.key] = [Turn(self._completion(raw, output, ctx)) for raw, output in decisions]
        if self.keep:
            self._kept = turns
        return [
            Episode(prompt, group=slot, attempt=0, turns=list(turns[prompt.key]), source="demo")
            for slot, prompt in prompts
        ]

    @staticmethod
    def _completion(raw, output, ctx: Context) -> Completion:
        action = ctx.policy.imitate(raw, output)
        return Completion(
            observation=ctx.policy.encode(raw),
            action=action,
            logprobs=torch.zeros(len(action)),
            mask=torch.ones(len(action), dtype=torch.bool),
            output=output,
            extra={"temperature": torch.tensor(1.0)},
        )
