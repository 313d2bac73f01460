"""Fill a replay buffer with the transitions of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.data.offline.checks import check_episode
from mmrl.data.offline.ends import check_ends
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.distributed import parallel
from mmrl.distributed.free_memory import available_memory
from mmrl.policies.control.actor import ActorPolicy

MAX_BLOCK = 64
"""Episodes that are encoded and stored together are at most so many, and at most a hundredth of all: the memory beside
the buffer stays small, and many short episodes take few calls."""
MAX_BLOCK_BYTES = 2**23
"""Bytes of encoded rows, above which fewer episodes than `MAX_BLOCK` are taken together."""
MEMORY_SHARE = 0.5
"""Of the available memory, which a recording may take before it stays on disk."""
_TOLERANCE = 1e-4  # of the box's width: rounding of float32, not another scale


def fill_replay(replay: ReplayBuffer, dataset: Dataset, policy: ActorPolicy, checks_ends: bool = True) -> None:
    """Store all transitions of a dataset, and note their states for the policy's running statistics. Collective.

    Process r of P stores episodes r, r + P, ... of every block.

    Args:
        replay: an empty replay buffer.
        dataset: recorded episodes, with rewards.
        policy: encodes observations and actions.
        checks_ends: refuse terminals and timeouts that look exchanged (`check_ends`).

    Raises:
        ValueError: an episode has no rewards, or actions that the policy cannot take, or the buffer is too small; with
            file, episode and control step.
    """
    _check_actions(dataset, policy)
    rank, size = parallel.rank_and_size()
    ends: list[tuple[int, str]] = []
    num_final = 0  # rows with a final observation that this process stored
    block = min(MAX_BLOCK, max(1, len(dataset) // (100 * size)))
    if block > 1:
        first = dataset[0]
        block = max(1, min(block, MAX_BLOCK_BYTES // max(1, len(first) * _row_bytes(first, policy))))
    for start in range(0, len(dataset), block * size):
        numbers = range(start + rank, min(start + block * size, len(dataset)), size)
        episodes = [dataset[number] for number in numbers]
        ends += [(len(episode), episode.ended) for episode in episodes]
        rows, final = encode_transitions(episodes, list(numbers), policy)
        policy.count_rows(rows, lambda sums: parallel.total(sums, policy.device))
        replay.add(rows, final)
        num_final += len(final["episode"])
        _check_capacity(replay, replay.num_transitions, dataset)
    _check_capacity(replay, replay.num_transitions + sum(parallel.gather([num_final])), dataset)
    if checks_ends:
        check_ends(dataset.path, parallel.gather(ends))
    if not replay.num_transitions:
        raise ValueError(f"{dataset.path}: no episode has a transition whose next observation is known")


def exceeds_memory(dataset: Dataset, policy: ActorPolicy, capacity: int) -> bool:
    """Whether the rows of a dataset need more than `MEMORY_SHARE` of the available memory.

    Args:
        dataset: recorded episodes.
        policy: encodes observations and actions.
        capacity: rows of the buffer, which takes no larger dataset.
    """
    limit = MEMORY_SHARE * available_memory()
    row = _row_bytes(dataset[0], policy)
    return row * capacity > limit and row * (sum(dataset.lengths()) + len(dataset)) > limit


def _row_bytes(episode: OfflineEpisode, policy: ActorPolicy) -> int:
    """Bytes of a stored row: reward, kind, action, and the observations that the policy reads."""
    columns = {name: np.asarray(rows[:1]) for name, rows in episode.observations.items()}
    return 5 + 4 * episode.actions[0].size + sum(column.nbytes for column in _encode(columns, policy).values())


def _check_capacity(replay: ReplayBuffer, rows: int, dataset: Dataset) -> None:
    if rows > replay.capacity:
        raise ValueError(
            f"{dataset.path} has more transitions than data.replay.capacity={replay.capacity:,}, final observations "
            "included; raise it, or set data.on_disk=true"
        )


def _check_actions(dataset: Dataset, policy: ActorPolicy) -> None:
    feature = dataset.features["action"]
    if not feature.dtype.startswith("float"):
        raise ValueError(f"{dataset.path}: actions are {feature.dtype}, numbered; offline methods here take real ones")
    if tuple(policy.action_shape) != feature.shape:
        raise ValueError(
            f"{dataset.path}: actions have shape {list(feature.shape)}, the policy's {list(policy.action_shape)}; set "
            "policy.actions to the dataset's (a simulator that is named with sim=... must have the same)"
        )


def encode_transitions(
    episodes: Sequence[OfflineEpisode], numbers: Sequence[int], policy: ActorPolicy
) -> tuple[Batch, Batch]:
    """Convert episodes to the arguments of `ReplayBuffer.add`.

    The actions are those that were executed, which a recording with noise has beside those of its expert.
    The final observation of an episode that did not terminate is the recorded one. Where none was recorded, the
    observation before the last action takes its place, and that action is left out, as D4RL does.

    Args:
        episodes: with rewards.
        numbers: of the episodes in their dataset.
        policy: encodes observations and actions.
    """
    rewards, actions, lengths = [], [], []  # of each episode: [T], [T, A] and T, the rows that are stored
    observations: dict[str, list[np.ndarray]] = {}
    final: dict[str, list[np.ndarray]] = {}
    closed, stored = [], []  # numbers of the episodes with a final observation, and of those with rows
    for number, episode in zip(numbers, episodes):
        episode_rewards = check_episode(episode)
        length = len(episode) - (not episode.terminated and episode.final is None)
        if not length:
            continue
        stored.append(number)
        lengths.append(length)
        rewards.append(episode_rewards[:length])
        actions.append(_played_actions(episode, policy)[:length])
        for name, rows in episode.observations.items():
            observations.setdefault(name, []).append(rows[:length])
        if not episode.terminated:
            closed.append(number)
            following = episode.final or {name: rows[length] for name, rows in episode.observations.items()}
            for name, row in following.items():
                final.setdefault(name, []).append(row)
    end = torch.tensor(closed, dtype=torch.long)
    if not lengths:
        return Batch(), Batch(episode=end)
    counts = torch.tensor(lengths)
    episode_of_row = torch.tensor(stored).repeat_interleave(counts)
    last = torch.zeros(len(episode_of_row), dtype=torch.bool).index_fill(0, counts.cumsum(0) - 1, True)
    rows = Batch(
        _encode({name: np.concatenate(parts) for name, parts in observations.items()}, policy),
        action=_scale_actions(np.concatenate(actions), episodes, policy)[:, None],
        reward=torch.from_numpy(np.concatenate(rewards).astype(np.float32)),
        episode=episode_of_row,
        group=episode_of_row,
        is_last=last,
        is_terminal=last & ~torch.isin(episode_of_row, end),
    )
    return rows, Batch(_encode({name: np.stack(parts) for name, parts in final.items()}, policy), episode=end)


def _played_actions(episode: OfflineEpisode, policy: ActorPolicy) -> np.ndarray:
    """The actions [T, A] that led to the recorded rewards and observations.

    Where noise was added to an expert's actions, those with the noise: within the box, at which simulators stop it.
    """
    if episode.executed is None:
        return episode.actions
    return np.clip(episode.executed, policy.low.cpu().numpy(), policy.high.cpu().numpy())


def _encode(columns: dict[str, np.ndarray], policy: ActorPolicy) -> dict[str, Tensor]:
    encoded = policy.encode_batch(columns) if columns else {}
    return {f"obs.{name}": column for name, column in encoded.items()}


def _scale_actions(actions: np.ndarray, episodes: Sequence[OfflineEpisode], policy: ActorPolicy) -> Tensor:
    """The choices [N, A] of the recorded actions of some episodes; refuses those outside of the policy's box."""
    low, high = policy.low.cpu(), policy.high.cpu()
    share = (torch.from_numpy(actions) - low) / (high - low)
    if bool(((share < -_TOLERANCE) | (share > 1 + _TOLERANCE)).any()):
        for episode in episodes:
            _refuse_outside(episode, low, high)
    return policy.from_action((2 * share - 1).clamp(-1, 1))


def _refuse_outside(episode: OfflineEpisode, low: Tensor, high: Tensor) -> None:
    share = (torch.from_numpy(episode.actions) - low) / (high - low)
    for step, dim in ((share < -_TOLERANCE) | (share > 1 + _TOLERANCE)).nonzero().tolist():
        raise ValueError(
            f"{episode.where}: dimension {dim} of the action at control step {step} is {episode.actions[step, dim]:.6g}"
            f", outside of the policy's box [{low[dim]:.6g}, {high[dim]:.6g}]; set policy.low and policy.high to the "
            "units of the recording"
        )
