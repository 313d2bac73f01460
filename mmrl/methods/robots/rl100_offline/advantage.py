"""The offline policy gradient: chains of the policy in recorded states, with the critics' advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.datasets.formats import open_dataset
from mmrl.methods.robots.rl100_offline.models import OfflineModels
from mmrl.rollouts.base import Rollout


def read_states(path: str, first: bool = False) -> np.ndarray:
    """Read the state vectors [N, D] of a recording: of every control step, or of the first one of every episode."""
    dataset = open_dataset(path)
    try:
        if "state" not in dataset.features:
            raise ValueError(f"{path}: its episodes have no observation 'state', but {sorted(dataset.features)}")
        rows = [np.asarray(episode.observations["state"]) for episode in dataset]
    finally:
        dataset.close()
    return np.concatenate([episode[:1] if first else episode for episode in rows])


class RecordedStates(Rollout):
    """The policy chooses in states of a recording, one decision each; nothing is played.

    States are drawn evenly from all control steps, anew for every prompt of an iteration; what the choice is worth is
    the critics' business. Source: RL-100, 2025, the offline objective, arXiv:2510.14830.

    Args:
        path: of the recording, with observations "state".
    """

    def __init__(self, path: str):
        self.path = path

    @cached_property
    def _states(self) -> np.ndarray:
        return read_states(self.path)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        key = (ctx.seed, ctx.purpose, "recorded_states", ctx.iteration)
        episodes, requests = [], []
        for slot, prompt in prompts:
            row = derive_rng(*key, slot).integers(len(self._states))
            for index in ctx.sample_indices(slot):
                info = {"scores": {}, "row": int(row)}
                episodes.append(Episode(prompt, group=slot, sample_index=index, info=info))
                requests.append(Request({"state": self._states[row]}, derive_seed(*key, slot, index)))
        for episode, completion in zip(episodes, ctx.engine.sample(requests, ctx.sampling)):
            episode.turns = [Turn(completion)]
        return episodes


@dataclass(frozen=True)
class CriticAdvantage(Annotator):
    """A = Q(s, a) - V(s) of the chunk a that every row's chain ends with, the same for all its transitions.

    Source: RL-100, 2025, the offline objective, arXiv:2510.14830; Implicit Q-Learning, 2021, arXiv:2110.06169.

    Args:
        path: checkpoint of a run of recipe rl100_critics.
        chunk: H, control steps of a chunk.
        scale: divide by the standard deviation over the iteration's rows; the mean, which says whether the policy is
            better than V, stays.
    """

    path: str
    chunk: int
    scale: bool = True

    def reads(self) -> frozenset[str]:
        return frozenset({"action", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    @cached_property
    def _models(self) -> OfflineModels:
        return OfflineModels.load(self.path)

    @torch.no_grad()
    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        # [N, H A] the ends of the chains, as they were played
        chunks = batch["action"][:, -self.chunk :].clamp(-1, 1).flatten(1)
        advantages = self._models.advantage(batch["obs.state"], chunks)
        if self.scale:
            everyone = torch.tensor(ctx.collector.gather(advantages.tolist()))
            advantages = advantages / everyone.std(correction=0).clamp(min=1e-6)
        return batch.with_columns(advantages=advantages[:, None].expand_as(batch["action_mask"]).contiguous())
