"""The states of transforms, rollouts and row transforms in checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.distributed import parallel
from mmrl.rollouts.base import ContinuingRollout, Rollout
from mmrl.transforms.base import EpisodeTransform, StatefulTransform


def collect_states(transforms: Mapping[str, EpisodeTransform]) -> dict[str, Any]:
    """Return the state of every transform that has one. Collective.

    Raises:
        ValueError: the processes have different states, so that a checkpoint could not hold the state of all.
    """
    stateful = {name: part for name, part in transforms.items() if isinstance(part, StatefulTransform)}
    states = {name: part.state_dict() for name, part in stateful.items()}
    if not states:
        return states
    for rank, others in enumerate(parallel.gather([states])):
        if wrong := [name for name in states if not is_equal(states[name], others[name])]:
            raise ValueError(
                f"data.transforms.{wrong[0]} ({type(stateful[wrong[0]]).__name__}): its state in process {rank} is not "
                "that of this process; compute it from what ctx.collector.gather gives, or use trainer.devices=1"
            )
    return states


def load_states(transforms: Mapping[str, EpisodeTransform], states: Mapping[str, Any]) -> None:
    """Restore the states that a checkpoint holds; a transform that it does not know starts anew."""
    for name, part in transforms.items():
        if isinstance(part, StatefulTransform) and name in states:
            part.load_state_dict(states[name])


def copy_stateful(transforms: Mapping[str, EpisodeTransform]) -> list[EpisodeTransform]:
    """Return the transforms in order, with copies of those that have a state, for rows that must not change it."""
    return [copy.deepcopy(part) if isinstance(part, StatefulTransform) else part for part in transforms.values()]


def load_rollout(rollout: Rollout, states: Sequence[dict[str, Any]]) -> None:
    """Restore this process's state of the rollout.

    Args:
        rollout: of this run.
        states: of each process of the run that saved them.
    """
    rank, size = parallel.rank_and_size()
    if len(states) != size and isinstance(rollout, ContinuingRollout):
        states = [rollout.share_states(states, each, size) for each in range(size)]
    elif len(states) != size and any(one != states[0] for one in states):
        raise ValueError(
            f"the checkpoint holds simulator states of {len(states)} processes, this run has {size}; "
            "resume with the same trainer.devices"
        )
    rollout.load_state_dict(states[rank] if rank < len(states) else states[0])


def is_equal(one: Any, other: Any) -> bool:
    """Compare two states without tolerance."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping) and one.keys() == other.keys() and all(is_equal(one[k], other[k]) for k in one)
        )
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return bool(one == other)
