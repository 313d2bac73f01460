"""Offline iterations: learn from recorded transitions, and collect more of them later if asked to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context
from mmrl.data.collector import Collected
from mmrl.data.offline.played_log import PlayedLog
from mmrl.data.offline.relabelling import Relabelling
from mmrl.data.offline.streamed_replay import StreamedReplay
from mmrl.data.offline.transitions import exceeds_memory, fill_replay
from mmrl.data.replay_data import ReplayData
from mmrl.data.rollout_data import RolloutData
from mmrl.datasets.base import Dataset
from mmrl.datasets.formats import open_dataset
from mmrl.distributed import parallel
from mmrl.policies.control.actor import ActorPolicy
from mmrl.rollouts.base import simulator_of


class OfflineReplayData(ReplayData):
    """Learn from the transitions that are in the replay buffer before the first update: offline RL.

    They come from a dataset, or from a log that the simulator's script plays, or, without either, from the first
    `learning_starts` decisions, which are drawn uniformly from the action box of the simulator. Buffer, batches and
    phases are those of online methods, so that `collect_from=K` goes on online: from iteration K on the policy adds its
    own transitions to the recorded ones.

    Args:
        path: folder or file of a dataset that `mmrl data inspect` reads, with rewards unless `relabelling` gives them;
            None records random actions.
        collect_from: first iteration in which the policy collects; None never collects.
        checks_ends: refuse a dataset whose terminal states and time limits look exchanged.
        log: played by the simulator's script in place of a dataset; `path` takes precedence.
        relabelling: gives the recorded transitions their rewards; None takes the recorded ones.
        on_disk: keep the transitions of the recording in a file and draw batches from there (`StreamedReplay`), in one
            process that collects nothing; None where they need more than half of the available memory.
        folder: of that file, which is gone when the run ends; None is the folder of the run.
    """

    def __init__(
        self,
        path: str | None = None,
        collect_from: int | None = None,
        checks_ends: bool = True,
        log: PlayedLog | None = None,
        relabelling: Relabelling | None = None,
        on_disk: bool | None = None,
        folder: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if collect_from is not None:
            check_at_least(0, "data", collect_from=collect_from)
        self.path, self.collect_from, self.checks_ends = path, collect_from, checks_ends
        self.log, self.relabelling = log, relabelling
        self.on_disk, self.folder = on_disk, folder
        self._recording_metrics: dict[str, float] = {}
        if self._recorded:
            self.learning_starts = 1  # no decision is drawn uniformly
        if relabelling is not None and (collect_from is not None or not self._recorded):
            raise ValueError(
                f"data.relabelling gives the transitions of a recording their rewards (data.path={path}), and none "
                f"that the policy collects later (data.collect_from={collect_from}); name a file and set "
                "data.collect_from=null"
            )
        if on_disk and (collect_from is not None or not self._recorded):
            raise ValueError(
                f"data.on_disk=true keeps a recording on disk (data.path={path}), to which no transitions are added "
                f"(data.collect_from={collect_from}); name a file and set data.collect_from=null, or data.on_disk=false"
            )

    @property
    def _recorded(self) -> bool:
        """Whether the transitions are those of a dataset or of a played log, which can be read again."""
        return self.path is not None or self.log is not None

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self.collect_from is not None:
            simulator_of(self.task, f"data.collect_from={self.collect_from}")
        if stage == "fit" and self._recorded and not self.replay.num_transitions:
            dataset = self._open_recording()
            try:
                if self.relabelling is not None:
                    folder, device = Path(self.trainer.default_root_dir), parallel.device_of(self.trainer)
                    dataset, self._recording_metrics = self.relabelling.relabel(dataset, self.seed, folder, device)
                policy = self.trainer.lightning_module.policy
                if self._stays_on_disk(dataset, policy):
                    self.replay = StreamedReplay(self.replay, Path(self.folder or self.trainer.default_root_dir))
                fill_replay(self.replay, dataset, policy, self.checks_ends)
            finally:
                dataset.close()

    def _stays_on_disk(self, dataset: Dataset, policy: ActorPolicy) -> bool:
        processes = parallel.rank_and_size()[1]
        if self.on_disk is None:
            if self.collect_from is not None or processes > 1:
                return False
            return exceeds_memory(dataset, policy, self.replay.capacity)
        if self.on_disk and processes > 1:
            raise ConfigError(
                f"data.on_disk=true reads the recording in one process, and there are {processes}; set "
                "trainer.devices=1, or data.on_disk=false, with which each process has its share in memory"
            )
        return self.on_disk

    def close(self) -> None:
        super().close()
        if isinstance(self.replay, StreamedReplay):
            self.replay.close()

    def _open_recording(self) -> Dataset:
        if self.path is not None:
            return open_dataset(self.path)
        assert self.log is not None
        return self.log.play(self.task, self.seed)

    @property
    def _collects(self) -> bool:
        """Whether the present iteration plays episodes."""
        online = self.collect_from is not None and self.iteration >= self.collect_from
        return online or self.replay.num_transitions < self.learning_starts

    def _next_collection(self, ctx: Context) -> Collected:
        return super()._next_collection(ctx) if self._collects else Collected([], [], [], {}, ctx.policy)

    def _finish_collection(self, ctx: Context) -> None:
        super()._finish_collection(ctx)
        if self.iteration == 0:  # normalise by the statistics of the recorded states from the first update on
            self.trainer.lightning_module.policy.include_rows()
            self.metrics |= self._recording_metrics

    # ---------------------------------------------------------------- checkpoints

    def _collection_state(self) -> dict[str, Any]:
        """State of collections; a buffer that the recording fills again is left out."""
        if self._recorded and self.collect_from is None:
            return RolloutData._collection_state(self)
        return super()._collection_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "replay" in state:
            super().load_state_dict(state)
        else:
            RolloutData.load_state_dict(self, state)
