"""What transitions need of an episode, whatever format it was read from."""

from __future__ import annotations

import numpy as np

from mmrl.datasets.offline_episodes import OfflineEpisode, find_unusable


def check_episode(episode: OfflineEpisode) -> np.ndarray:
    """Return the rewards [T] of an episode; refuse one without them, or with a broken final observation.

    Other numbers that are not finite, and columns of other lengths, are refused as an episode is read.

    Raises:
        ValueError: with file, episode and column.
    """
    if episode.rewards is None:
        raise ValueError(
            f"{episode.where}: it has no rewards, which offline RL learns from; add them (`rewards` in HDF5 and .npz, "
            "next.reward in a LeRobotDataset), name a goal (data.relabelling._target_=mmrl.data.offline."
            "goal_reward.GoalReward), or imitate the actions: recipe=bc"
        )
    if episode.rewards.shape != (len(episode),):
        raise ValueError(
            f"{episode.where}: rewards have shape {list(episode.rewards.shape)}, there are {len(episode)} actions; "
            "write one number for each control step"
        )
    if episode.final is not None and not episode.terminated:
        _check_final(episode, episode.final)
    return episode.rewards


def _check_final(episode: OfflineEpisode, final: dict[str, np.ndarray]) -> None:
    if absent := sorted(set(episode.observations) - set(final)):
        raise ValueError(f"{episode.where}: the observation after the last action lacks {absent}; record all of it")
    for name, rows in episode.observations.items():
        last = np.asarray(final[name])
        if last.shape != tuple(rows.shape[1:]):
            raise ValueError(
                f"{episode.where}: the observation {name} after the last action has shape {list(last.shape)}, those "
                f"before it {list(rows.shape[1:])}; write the file again"
            )
        if len(broken := find_unusable(last[None])):
            raise ValueError(
                f"{episode.where}: the observation {name} after the last action is {last[tuple(broken[0][1:])]:.4g} "
                f"at index {broken[0][1:].tolist()}, not a usable number; leave the episode out or mend it"
            )
