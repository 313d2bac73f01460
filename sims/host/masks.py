"""Masks of legal actions, in an observation, in `info`, or from a method of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.host.actions import ActionReader, SpaceError

MASK = "action_mask"
"""Name of the mask in the observations and infos of environments, and in those of `sims.host.adapter.ControlEnv`."""


def plan_mask(env: gymnasium.Env, info: Mapping[str, Any]) -> str | None:
    """Where an environment's mask of legal actions comes from, after a reset; None without one.

    Raises:
        ValueError: there is a mask that does not fit the actions.
    """
    try:
        size = ActionReader(env.action_space).mask_size
    except SpaceError:
        return None
    observed = env.observation_space
    if not size:
        return None
    if isinstance(observed, spaces.Dict) and MASK in observed.spaces:
        _check_size("observation['action_mask']", spaces.flatdim(observed.spaces[MASK]), size, env)
        return "observation"
    if MASK in info:
        _check_size("info['action_mask']", join_mask(info[MASK]).size, size, env)
        return "info"
    method = _mask_method(env)
    if method is None:
        return None
    _check_size("action_masks()", join_mask(method()).size, size, env)
    return "method"


def read_mask(env: gymnasium.Env, source: str, observation: Any, info: Mapping[str, Any]) -> np.ndarray | None:
    """The mask of legal actions [sum of the blocks] as the environment gives it; None where this step has none."""
    if source == "observation":
        return join_mask(observation[MASK])
    if source == "info":
        return join_mask(info[MASK]) if MASK in info else None
    method = _mask_method(env)
    return None if method is None else join_mask(method())


def check_mask(mask: np.ndarray | None, blocks: list, ended: bool) -> np.ndarray:
    """The mask as int8, with at least one legal action in every block.

    Args:
        mask: as the environment gave it.
        blocks: numbers of actions.
        ended: the episode is over, where no action follows and all count as legal.

    Raises:
        ValueError: there is none, it has another size, or no action of a block is legal.
    """
    size = sum(blocks)
    if ended and (mask is None or mask.size != size):
        return np.ones(size, np.int8)
    if mask is None or mask.size != size:
        entries = None if mask is None else mask.size
        raise ValueError(f"the mask of legal actions must have {size} entries, got {entries}")
    legal = (mask != 0).astype(np.int8)
    for part in np.split(legal, np.cumsum(blocks)[:-1]):
        if not part.any():
            if not ended:
                raise ValueError("the mask of legal actions allows no action; end the episode in such a state")
            part[:] = 1
    return legal


def join_mask(mask: Any) -> np.ndarray:
    """A mask, or one for each number of the action, as one vector."""
    if isinstance(mask, (list, tuple)) and mask and not np.isscalar(mask[0]):
        return np.concatenate([np.ravel(part) for part in mask])
    return np.ravel(np.asarray(mask))


def _mask_method(env: Any) -> Any:
    while env is not None:
        if callable(getattr(type(env), "action_masks", None)):
            return env.action_masks
        env = env.__dict__.get("env")
    return None


def _check_size(name: str, size: int, wanted: int, env: gymnasium.Env) -> None:
    if size != wanted:
        raise ValueError(f"{name} has {size} entries, but the actions {env.action_space} need {wanted}")
