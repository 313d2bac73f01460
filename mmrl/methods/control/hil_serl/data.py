"""HIL-SERL: off-policy iterations that begin with demonstrations in the human's buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_seed
from mmrl.data.offline.transitions import encode_transitions
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.data.replay_data import ReplayData
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.datasets.recording import ExpertActor, record
from mmrl.distributed import parallel
from mmrl.methods.control.hil_serl.buffers import HumanReplayBuffer, select_interventions
from mmrl.policies.control.actor import ActorPolicy
from mmrl.rollouts.base import simulator_of


class HumanReplayData(ReplayData):
    """HIL-SERL: `ReplayData` with demonstrations, and with the interventions of `InterventionRollout`.

    Demonstrations are of the simulator's expert, or of a dataset with rewards. Of an episode with the column
    `intervention`, as `mmrl robot` writes it, the human's rows are taken alone; of one without it, all.
    Source: Luo et al., 2024, section III, arXiv:2410.21845.

    Args:
        demonstrations: episodes of the expert; 0 for none.
        path: dataset of demonstrations in their place, that `mmrl data inspect` reads.
        options: of `ReplayData`; `replay` is a `HumanReplayBuffer`.
    """

    def __init__(self, demonstrations: int = 20, path: str | None = None, **options: Any):
        super().__init__(**options)
        check_at_least(0, "data", demonstrations=demonstrations)
        check_replay(self.replay)
        self.demonstrations, self.path = demonstrations, path

    def setup(self, stage: str) -> None:
        if parallel.rank_and_size()[1] > 1:
            raise ConfigError("HIL-SERL has one human in one process; set trainer.devices=1")
        super().setup(stage)
        human = self.replay.human  # type: ignore[attr-defined]
        if stage == "fit" and not human.num_transitions:
            for episodes in self._demonstrate():
                self._add(episodes)

    def _demonstrate(self) -> Iterator[Sequence[OfflineEpisode]]:
        """Demonstrations, some episodes at a time."""
        if self.path is not None:
            dataset = open_dataset(self.path)
            for number in range(len(dataset)):
                yield [dataset[number]]
            dataset.close()
            return
        sim = simulator_of(self.task, "data.demonstrations").stepwise()
        if self.demonstrations and not hasattr(sim, "expert"):
            raise ConfigError(f"data.demonstrations: sim {sim.name!r} has no scripted expert; set data.path")
        draws = [derive_seed(self.seed, "demonstrations", i) % len(self.task) for i in range(self.demonstrations)]
        seeds = [self.task[i].info["seed"] for i in draws]
        for batch in record(sim, seeds, lambda some: ExpertActor(sim, some, 0.0)):
            yield batch.episodes

    def _add(self, episodes: Sequence[OfflineEpisode]) -> None:
        """Store the human's transitions of some episodes."""
        policy: ActorPolicy = self.trainer.lightning_module.policy
        rows, final = encode_transitions(episodes, range(len(episodes)), policy)
        if not rows:
            return
        flags = []
        for number, episode in enumerate(episodes):
            count = int((rows["episode"] == number).sum())
            column = episode.interventions
            flags.append(torch.ones(count, dtype=torch.bool) if column is None else torch.from_numpy(column[:count]))
        rows["intervention"] = torch.cat(flags)
        policy.count_rows(rows, partial(parallel.total, device=policy.device))
        self.replay.human.add(*select_interventions(rows, final))  # type: ignore[attr-defined]


def check_replay(replay: ReplayBuffer) -> None:
    """Refuse a buffer that does not keep the human's transitions apart."""
    if not isinstance(replay, HumanReplayBuffer):
        raise ConfigError(f"data.replay={type(replay).__name__}: HIL-SERL needs HumanReplayBuffer")
