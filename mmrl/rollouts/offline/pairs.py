"""Preference pairs: two answers to a prompt, of which one was preferred."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.best_worst import label_preference
from mmrl.types import Context, Episode, Observation, Prompt, Request, Turn


def answers(prompt: Prompt) -> tuple[str, str]:
    """The preferred and the other answer of a prompt."""
    missing = [name for name in ("chosen", "rejected") if name not in prompt.info]
    if missing:
        raise ValueError(f"prompt {prompt.key!r} has no {missing}; pairs come from a task such as task=preferences")
    return prompt.info["chosen"], prompt.info["rejected"]


class PreferencePairs(Rollout):
    """Both answers of every prompt as episodes of one group, chosen and rejected; the policy did not sample them."""

    samples = False

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        out = []
        for slot, prompt in prompts:
            for sample_index, (answer, sign) in enumerate(zip(answers(prompt), (1, -1))):
                raw = {**prompt.observation, "answer": answer}  # for those that read it with the prompt
                turn = Turn(demonstration(raw, answer, ctx))
                out.append(label_preference(Episode(prompt, slot, sample_index, [turn], source="demo"), sign))
        for one, other in zip(out[::2], out[1::2]):
            pair = one.turns[0].completion, other.turns[0].completion
            if _same(*(done.observation for done in pair)):
                for done in pair:
                    done.prompt_id = one.group  # so that the prompt is read once
        return out


def _same(one: Observation, other: Observation) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class ScoredPairs(Rollout):
    """Score both answers of every prompt with a reward model (accuracy on preference pairs).

    The episode's scores are `right`, whether the preferred answer got more, and `margin`, how much more.
    """

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        requests = [
            Request({**prompt.observation, "answer": answer}, 0) for _, prompt in prompts for answer in answers(prompt)
        ]
        done = ctx.engine.sample(requests, ctx.sampling)
        out = []
        for (slot, prompt), chosen, rejected in zip(prompts, done[::2], done[1::2]):
            margin = float(chosen.output) - float(rejected.output)
            scores = {"right": float(margin > 0), "margin": margin}
            out.append(Episode(prompt, slot, 0, [Turn(chosen)], info={"scores": scores}))
        return out
