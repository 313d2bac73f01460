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
from mmrl.ops.masked import zero_outside
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
    """The policy chooses in states of a recording, one decision each, and is paid A = Q(s, a) - V(s).

    Nothing is played. States are drawn evenly from all control steps, anew for every prompt of an iteration; a is the
    chunk that the chain ended with, in [-1, 1]; A is the reward of the decision.
    Source: RL-100, 2025, the offline objective, arXiv:2510.14830; Implicit Q-Learning, 2021, arXiv:2110.06169.

    Args:
        path: of the recording, with observations "state".
        critics: checkpoint of a run of method rl100_critics.
    """

    def __init__(self, path: str, critics: str):
        self.path, self.critics = path, critics

    @cached_property
    def _states(self) -> np.ndarray:
        return read_states(self.path)

    @cached_property
    def _models(self) -> OfflineModels:
        return OfflineModels.load(self.critics)

    @torch.no_grad()
    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        key = (ctx.seed, ctx.purpose, "recorded_states", ctx.iteration)
        episodes, requests, rows = [], [], []
        for slot, prompt in prompts:
            row = int(derive_rng(*key, slot).integers(len(self._states)))
            for index in ctx.sample_indices(slot):
                episodes.append(Episode(prompt, group=slot, sample_index=index))
                requests.append(Request({"state": self._states[row]}, derive_seed(*key, slot, index)))
                rows.append(row)
        completions = ctx.engine.sample(requests, ctx.sampling) if requests else []
        # [N, H A] chunks as they would be played, [N, D] states -> [N] advantages
        chunks = [torch.from_numpy(np.asarray(each.output, np.float32)).flatten() for each in completions]
        states = torch.from_numpy(self._states[rows]).float()
        advantages = self._models.advantage(states, torch.stack(chunks)).tolist() if chunks else []
        for episode, completion, advantage in zip(episodes, completions, advantages):
            episode.turns = [Turn(completion, advantage)]
        return episodes


@dataclass(frozen=True)
class DecisionAdvantage(Annotator):
    """The advantage of every choice of a row is the reward of its decision, such as the A = Q - V of `RecordedStates`.

    All transitions of a chain have the same one. Source: RL-100, 2025, arXiv:2510.14830.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        mask = batch["action_mask"]
        return batch.with_columns(advantages=zero_outside(batch["reward"][:, None].expand(mask.shape), mask))
