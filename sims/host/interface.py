"""What mmrl reads in the `info` of an environment, and which environments are taken at their word."""

from __future__ import annotations

from typing import Any

NAMES = frozenset({"executed", "scores", "error", "task", "final_obs", "final_info"})
"""Entries of `infos` that rollouts read. An environment that was not written for mmrl may use the same names."""
STATED = "mmrl_infos"
"""Entry of an environment's `metadata`: which of these names it uses as rollouts do."""


def foreign_names(env: Any, stated: Any = ()) -> frozenset:
    """Names of mmrl's interface that mean something else in the `info` of an environment.

    Args:
        env: whose `metadata` may state names.
        stated: further names that are mmrl's.
    """
    env_names = (getattr(env, "metadata", None) or {}).get(STATED, ())
    return NAMES - frozenset(stated) - frozenset(env_names)


def drop_names(info: Any, names: frozenset) -> Any:
    """The info without entries of these names; the same object where it has none."""
    if names.isdisjoint(info):
        return info
    return {name: value for name, value in info.items() if name not in names}


def convert_scores(info: Any) -> Any:
    """The info with scores as floats: of whole and real numbers in one column, gymnasium would cut the real ones.

    Raises:
        TypeError: scores are no mapping of names to numbers.
    """
    if "scores" not in info:
        return info
    scores = info["scores"]
    if not isinstance(scores, dict):
        raise TypeError(f"info['scores'] must be a dict of numbers by name, got {type(scores).__name__}")
    return {**info, "scores": {name: float(value) for name, value in scores.items()}}
