"""One question, one answer."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.rollouts.base import Rollout, turn_seed, worded
from mmrl.types import Context, Episode, Prompt, Request, Turn


class SingleTurn(Rollout):
    """Every attempt is one completion of the prompt."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes, requests = [], []
        for slot, prompt in prompts:
            raw = worded(prompt)
            for attempt in ctx.numbers(slot):
                requests.append(Request(raw, turn_seed(slot, attempt, ctx)))
                episodes.append(Episode(prompt, group=slot, attempt=attempt))
        ctx.progress("rollout", 0, len(requests))
        for episode, completion in zip(episodes, ctx.engine.sample(requests, ctx.sampling)):
            episode.turns.append(Turn(completion))  # type: ignore[attr-defined]
            episode.ended = completion.ended
        ctx.progress("rollout", len(requests), len(requests))
        return episodes
