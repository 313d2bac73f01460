"""Demonstrations of self-correction: first answers, a follow-up message, and the right answer at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mmrl.rng import derive_rng
from mmrl.rollouts.base import Rollout, worded
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.self_correction import asked_again
from mmrl.rollouts.text.transcript import Transcript
from mmrl.types import Context, Episode, Prompt, Turn


class SelfCorrectionDemonstrations(Rollout):
    """One row per prompt: several attempts with the request to try again between them, the last one right.

    Every attempt is the task's own answer, but a share of those before the last answers another problem of the task;
    such an attempt is not trained on.

    Args:
        num_attempts: attempts in a row.
        message: what the policy is told after an attempt, as for `SelfCorrection`.
        wrong: share of the attempts before the last that are another problem's answer, in [0, 1].
    """

    samples = False

    def __init__(self, num_attempts: int = 2, message: str = "\n", wrong: float = 0.5):
        if num_attempts < 2 or not message or not 0 <= wrong <= 1:
            raise ValueError(
                f"rollout: need num_attempts >= 2, a message and wrong in [0, 1], "
                f"got {num_attempts}, {message!r}, {wrong}"
            )
        self.num_attempts, self.message, self.wrong = num_attempts, message, wrong

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return [self._played(slot, prompt, ctx) for slot, prompt in prompts]

    def _played(self, slot: int, prompt: Prompt, ctx: Context) -> Episode:
        rng = derive_rng("attempts", ctx.seed, ctx.purpose, ctx.iteration, slot)
        script = Transcript(worded(prompt))
        answer = ctx.task.demonstrate(prompt.index)
        for number in range(self.num_attempts):
            if number:
                script.read(ctx.policy.tokenize(asked_again(self.message, prompt)))
            other = ctx.task.demonstrate(int(rng.integers(len(ctx.task))))
            right = number == self.num_attempts - 1 or other == answer or rng.random() >= self.wrong
            said = demonstration(prompt.observation, answer if right else other, ctx)
            script.write(said if right else replace(said, action_mask=torch.zeros_like(said.action_mask)))
        row = script.completion(answer, said.ended)
        return Episode(prompt, group=slot, sample_index=0, turns=[Turn(row)], source="demo")
