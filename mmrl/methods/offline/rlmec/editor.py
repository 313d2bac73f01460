"""RLMEC: prompts of the editor, a generative reward model, and demonstrations of corrections for its training.

Source: RLMEC, 2024, arXiv:2401.06081.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration

TEMPLATE = "\n{reference}\n---\n{answer}\n---\n"


def edit_observation(raw: Mapping[str, Any], reference: str, answer: str, template: str) -> dict[str, Any]:
    """The editor's observation: the question, and after it the reference solution and the answer to correct."""
    *before, last = raw["messages"]
    text, content = template.replace("{reference}", reference).replace("{answer}", answer), last["content"]
    content = content + text if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    return {**raw, "messages": (*before, {**last, "content": content})}


def references(prompts: Sequence[Prompt], ctx: Context) -> list[str]:
    """The task's demonstration of each prompt, which has to be one text."""
    demonstrations = ctx.task.demonstrations(prompts) if prompts else []
    if any(len(steps) != 1 or not isinstance(steps[0][1], str) for steps in demonstrations):
        raise ValueError(f"RLMEC corrects answers of one row, but task {ctx.task.name!r} is solved in several")
    return [str(output) for ((_, output),) in demonstrations]


class EditDemonstrations(Rollout):
    """Demonstrations for the editor: corrects the task's own answers, in which random characters were replaced.

    Args:
        error_rate: probability that a character is replaced by one of an answer to another problem.
        template: how the editor reads the {reference} and the {answer} after the question.
    """

    samples = False

    def __init__(self, error_rate: float = 0.2, template: str = TEMPLATE):
        check_fraction("rollout", error_rate=error_rate)
        self.error_rate, self.template = error_rate, template

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        out = []
        for (slot, prompt), right in zip(prompts, references([prompt for _, prompt in prompts], ctx)):
            rng = derive_rng("edit_demonstrations", ctx.seed, ctx.purpose, ctx.iteration, slot)
            other = list(ctx.task.guess(prompt, rng)) or [" "]
            wrong = "".join(str(rng.choice(other)) if rng.random() < self.error_rate else each for each in right)
            raw = edit_observation(prompt.observation, right, wrong, self.template)
            out.append(Episode(prompt, slot, 0, [Turn(demonstration(raw, right, ctx))], source="demo"))
        return out
