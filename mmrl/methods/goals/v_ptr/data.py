"""V-PTR's data: videos with outcomes and intents, and demonstrations of a new task beside those of earlier ones.

Robotic Offline RL from Internet Videos via Value-Function Pre-Training, 2023, arXiv:2309.13041.

- phase 1, pictures s, s' and outcomes and intents of hindsight: `IntentReplayBuffer` of a `VideoReplayData`
- phase 3, as many rows of both: `TargetReplayData`; critics of phase 2: `CriticStart`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import ConfigError, check_at_least, check_fraction
from mmrl.data.offline.hindsight import GoalReplayData, HindsightReplayBuffer, RewardlessDataset
from mmrl.data.offline.played_log import EpisodeDataset
from mmrl.data.offline.replay_data import OfflineReplayData
from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.policies.weights import checkpoint_weights
from mmrl.rollouts.base import simulator_of
from mmrl.runs.checkpoint_file import read_weights

register_columns(
    {
        "intent_reward": Column("[N]", "reward", "ICVF: 0 where the state is the intent's, else -1"),
        "intent_discount": Column("[N]", "1", "ICVF: 0 where the state is the intent's, else gamma"),
    }
)


class IntentReplayBuffer(HindsightReplayBuffer):
    """Replay buffer of videos whose samples have an outcome and an intent, the columns obs.outcome and obs.intent.

    Both are pictures of hindsight; with probability `same` the outcome is the intent. `reward` and `discount` are 0
    where the outcome is the picture itself, else -1 and gamma, `intent_reward` and `intent_discount` the same of the
    intent. Source: arXiv:2304.04782, released code.

    Args:
        same: probability that the outcome is the intent.
        options: those of `HindsightReplayBuffer`.
    """

    def __init__(self, *args: Any, same: float = 0.5, **options: Any):
        super().__init__(*args, **options)
        check_fraction("data.replay", same=same)
        self.same = same

    def writes(self) -> frozenset[str]:
        return super().writes() | {"obs.outcome", "obs.intent", "intent_reward", "intent_discount"}

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        index = self.draw(updates * self.batch_size, rng)
        columns = self.read(index)
        intent = self._draw_goals(self.goals, index, rng)
        other = self._draw_goals(self.goals, index, rng)
        outcome = torch.where(torch.from_numpy(rng.random(len(index)) < self.same), intent, other)
        for name, row, prefix in (("outcome", outcome, ""), ("intent", intent, "intent_")):
            away = (row != index).float()
            columns |= {f"obs.{name}": self._pictures_in(row)}
            columns |= {f"{prefix}reward": -away, f"{prefix}discount": self.gamma * away}
        return Batch({name: column.unflatten(0, (updates, self.batch_size)) for name, column in columns.items()})

    def _pictures_in(self, row: Tensor) -> Tensor:
        pictures = self.storage.columns.get("obs.image")
        if pictures is None:
            raise ValueError("data.replay: outcomes and intents are pictures, and the policy reads none")
        return pictures[row]


class ActionFreeDataset(RewardlessDataset):
    """A recording as a video: its actions are 0, and its rewards too."""

    def read(self, number: int) -> OfflineEpisode:
        episode = super().read(number)
        actions = np.zeros_like(episode.actions)
        return replace(episode, actions=actions, executed=None, rewards=np.zeros(len(episode), np.float32))


class VideoReplayData(GoalReplayData):
    """Learn from a recording without its actions and rewards."""

    def _open_recording(self) -> Dataset:
        return ActionFreeDataset(super()._open_recording())


def join_rows(target: Sequence[OfflineEpisode], prior: Sequence[OfflineEpisode]) -> list[OfflineEpisode]:
    """The target's episodes, repeated until they have about as many rows as the prior ones, then these."""
    repeats = max(1, round(sum(map(len, prior)) / sum(map(len, target))))
    return [*list(target) * repeats, *prior]


class TargetReplayData(OfflineReplayData):
    """Learn from a few successful episodes of the task and from a recording of an earlier one, half of the rows each.

    Both are played by the script of the simulator. The policy has to see which task a row is of.

    Args:
        num_demonstrations: successful episodes of the log that are taken, from the first one on.
        prior: arguments of the simulator of the earlier task; None for the demonstrations alone.
        prior_episodes: episodes of the earlier task's log.
        kwargs: as of `OfflineReplayData`, whose log is searched for demonstrations.

    Raises:
        ConfigError: the log has no successful episode, or the simulator has no such arguments.
    """

    def __init__(
        self,
        num_demonstrations: int = 5,
        prior: dict[str, Any] | None = None,
        prior_episodes: int = 100,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_at_least(1, "data", num_demonstrations=num_demonstrations, prior_episodes=prior_episodes)
        if self.path is not None or self.log is None:
            raise ConfigError(f"data.path={self.path}, data.log={self.log}: name a data.log, and set data.path=null")
        self.num_demonstrations, self.prior, self.prior_episodes = num_demonstrations, prior, prior_episodes

    def _open_recording(self) -> Dataset:
        log = super()._open_recording()
        episodes = [log[number] for number in range(len(log))]
        shown = [episode for episode in episodes if episode.success][: self.num_demonstrations]
        if not shown:
            raise ConfigError(f"data.log: none of {len(episodes)} episodes succeeds; raise data.log.num_episodes")
        self._recording_metrics = {"target/demonstrations": float(len(shown))}
        if self.prior is None:
            return EpisodeDataset(shown, str(log.path))
        try:
            task = replace(self.task, sim=replace(simulator_of(self.task, "data.prior"), **self.prior))  # type: ignore[type-var]
        except TypeError as error:
            raise ConfigError(f"data.prior={self.prior}: {error}; name arguments of the simulator") from error
        assert self.log is not None
        earlier = replace(self.log, num_episodes=self.prior_episodes).play(task, self.seed)
        return EpisodeDataset(join_rows(shown, earlier.episodes), str(log.path))


class CriticStart(L.Callback):
    """Start with models of an earlier stage's checkpoint, such as critics, beside the policy's weights.

    Args:
        checkpoint: file of the stage; nothing is loaded where the run has no such stage.
        models: names in `model.models` and `model.target_networks`.
    """

    def __init__(self, checkpoint: str, models: Sequence[str] = ("critic", "target_critic", "ent_coef")):
        self.checkpoint, self.models = Path(checkpoint), tuple(models)

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.ckpt_path is not None or not self.checkpoint.is_file():
            return
        if unknown := sorted(set(self.models) - set(pl_module.models)):
            raise ConfigError(f"trainer.callbacks: CriticStart loads {unknown}, and the learner has no such models")
        saved = read_weights(self.checkpoint)
        for name in self.models:
            pl_module.models[name].load_state_dict(checkpoint_weights(saved, str(self.checkpoint), f"models.{name}."))
