"""Single-turn rollout of text completions."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.rollouts.base import Rollout, text_observation, turn_seed


class SingleTurn(Rollout):
    """Single-turn rollout: every episode is one completion of its prompt."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes, requests = [], []
        for slot, prompt in prompts:
            raw = text_observation(prompt)
            indices = ctx.sample_indices(slot)
            for sample_index in indices:
                # a later collection of the prompt reads it again
                requests.append(Request(raw, turn_seed(slot, sample_index, ctx), prompt_id=(slot, indices.start)))
                episodes.append(Episode(prompt, group=slot, sample_index=sample_index))
        ctx.progress("rollout", 0, len(requests))
        for episode, completion in zip(episodes, ctx.engine.sample(requests, ctx.sampling)):
            episode.turns.append(Turn(completion))  # type: ignore[attr-defined]
            episode.ended = completion.ended
        ctx.progress("rollout", len(requests), len(requests))
        return episodes
