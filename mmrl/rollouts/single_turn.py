"""One question, one answer."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.rng import derived_seed
from mmrl.rollouts.base import Rollout
from mmrl.types import Context, Episode, Prompt, Request, Turn


class SingleTurn(Rollout):
    """Every attempt is one completion of the prompt."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes, requests = [], []
        for slot, prompt in prompts:
            if not prompt.messages:
                raise ValueError(
                    f"prompt {prompt.key!r} has no messages: tasks of simulators are played with rollout=env"
                )
            raw = prompt.observation  # one object for the group, so that it is encoded once
            for attempt in ctx.numbers(slot):
                seed = derived_seed(ctx.seed, ctx.purpose, ctx.iteration, slot, attempt)
                requests.append(Request(raw, seed))
                episodes.append(Episode(prompt, group=slot, attempt=attempt))
        ctx.progress("rollout", 0, len(requests))
        for episode, completion in zip(episodes, ctx.engine.sample(requests, ctx.sampling)):
            episode.turns.append(Turn(completion))
            episode.ended = completion.ended
        ctx.progress("rollout", len(requests), len(requests))
        return episodes
