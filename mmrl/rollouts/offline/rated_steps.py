"""Answers with a label for every step, to train a process reward model and to measure it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.core.types import Context, Episode, Prompt, Request, Task, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.offline.pairs import FIRST_ROWS


class RatedSteps(Rollout):
    """The answer of every prompt as an episode whose choices are the labels of its steps; the policy did not sample it.

    Steps and labels are `steps` and `step_labels` of `Prompt.info`.
    """

    samples = False

    def check_task(self, task: Task) -> None:
        for index in range(min(FIRST_ROWS, len(task))):
            _read_steps(task[index])

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = []
        for slot, prompt in prompts:
            raw, labels = _read_steps(prompt)
            episodes.append(Episode(prompt, slot, 0, [Turn(demonstration(raw, labels, ctx))], source="demo"))
        return episodes


class ScoredSteps(Rollout):
    """Predict whether each step is right with a process reward model: an episode for every step.

    Its scores are `right`, whether the prediction is that of the label, `right_of_right` and `right_of_wrong`, the same
    for steps of one label, and `probability` that the step is right.
    """

    def check_task(self, task: Task) -> None:
        RatedSteps().check_task(task)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        rows = [(slot, prompt, *_read_steps(prompt)) for slot, prompt in prompts]
        done = ctx.engine.sample([Request(raw, 0) for _, _, raw, _ in rows], ctx.sampling)
        out = []
        for (slot, prompt, _, labels), completion in zip(rows, done):
            for number, (label, probability) in enumerate(zip(labels, completion.output, strict=True)):
                right = float((probability > 0.5) == label)
                scores = {
                    "right": right,
                    f"right_of_{'right' if label else 'wrong'}": right,
                    "probability": probability,
                }
                out.append(Episode(prompt, slot, number, [Turn(completion)], info={"scores": scores}))
        return out


def _read_steps(prompt: Prompt) -> tuple[dict[str, Any], list[bool]]:
    """What the policy reads, and the labels of the steps."""
    steps, labels = prompt.info.get("steps"), prompt.info.get("step_labels")
    if not steps or not labels:
        raise ValueError(
            f"{prompt.place or prompt.key}: the row has no steps with labels; a process reward model needs rows such "
            'as {"prompt": text, "completions": [steps], "labels": [true or false for each]}'
        )
    return {**prompt.observation, "steps": steps}, labels
