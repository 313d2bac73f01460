"""Replay buffers of recorded action chunks: a decision of H control steps is one transition."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.data.offline.played_log import EpisodeDataset
from mmrl.data.offline.replay_data import OfflineReplayData
from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode


def chunk_episode(episode: OfflineEpisode, chunk: int) -> list[OfflineEpisode]:
    """Cut an episode of T control steps into decisions of `chunk` steps, once from each of the first `chunk` steps.

    Row j of the episode that begins at step b has the observation before step b + j H, the actions of the following H
    steps side by side [H A], and the sum of their rewards. A chunk past the end repeats the last action.

    Args:
        episode: with rewards, one row per control step.
        chunk: H.
    """
    if episode.rewards is None:
        raise ValueError(f"{episode.where}: it has no rewards, and a transition needs one; record them")
    actions = episode.actions if episode.executed is None else episode.executed
    episodes = []
    for begin in range(min(chunk, len(episode))):
        starts = range(begin, len(episode), chunk)
        # [J, H] control steps of every decision
        steps = np.minimum(np.add.outer(np.arange(begin, len(episode), chunk), np.arange(chunk)), len(episode) - 1)
        episodes.append(
            OfflineEpisode(
                actions=actions[steps].reshape(len(steps), -1),
                observations={name: np.asarray(rows)[begin::chunk] for name, rows in episode.observations.items()},
                rewards=np.array([episode.rewards[start : start + chunk].sum() for start in starts], np.float32),
                terminated=episode.terminated,
                truncated=episode.truncated,
                success=episode.success,
                final=episode.final,
                where=f"{episode.where}, decisions from control step {begin}",
            )
        )
    return episodes


class ChunkReplayData(OfflineReplayData):
    """Learn from the transitions of a recording whose actions are chunks of control steps.

    Args:
        chunk: H, control steps of a decision; the policy's action has H times the numbers of a control step.
        **kwargs: as of OfflineReplayData, with a path.
    """

    def __init__(self, chunk: int, **kwargs: Any):
        super().__init__(**kwargs)
        check_at_least(1, "data", chunk=chunk)
        if self.path is None or self.collect_from is not None:
            raise ValueError(
                f"data.chunk={chunk} cuts a recording into decisions (data.path={self.path}), and none that the policy "
                f"plays later (data.collect_from={self.collect_from}); name a file and set data.collect_from=null"
            )
        self.chunk = chunk

    def _open_recording(self) -> Dataset:
        dataset = super()._open_recording()
        try:
            episodes = [part for episode in dataset for part in chunk_episode(episode, self.chunk)]
        finally:
            dataset.close()
        return EpisodeDataset(episodes, f"{self.path}, in chunks of {self.chunk}")
