"""Normalisation statistics of OpenVLA: quantiles of each dataset, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmrl.policies.processor import Processor
from mmrl.policies.vla.scale import STATISTICS, Kind, Scale

NEW = "mmrl"  # name of statistics that are none of the checkpoint's


def select_key(norm_stats: Mapping[str, Any], unnorm_key: str | None, path: str) -> str | None:
    """Return the name of the statistics in use; None where the checkpoint has none.

    Raises:
        ValueError: there are several and none is named, or there is none of this name.
    """
    names = sorted(norm_stats)
    if unnorm_key is None and len(names) <= 1:
        return names[0] if names else None
    if unnorm_key in norm_stats:
        return unnorm_key
    cause = "it has statistics of several datasets" if unnorm_key is None else f"it has none of {unnorm_key!r}"
    raise ValueError(
        f"policy.path={path}: {cause}; set policy.unnorm_key to one of {', '.join(names)}, or set policy.processor to "
        "the units of another robot"
    )


def read_units(statistics: Mapping[str, Any], kind: Kind, proprio: bool) -> Processor:
    """Build a `policy.processor` from the statistics of a dataset.

    Args:
        statistics: {"action": {"q01", "q99", "mask", ...}, "proprio": ...}.
        kind: "quantile" takes q01 and q99 to -1 and 1, "min_max" the extremes.
        proprio: whether the model reads proprioception.
    """
    state = statistics.get("proprio") if proprio else None
    return Processor(
        vectors={} if state is None else {"proprio": Scale.of(kind, state, state.get("mask"), "proprio")},
        action=Scale.of(kind, statistics["action"], statistics["action"].get("mask"), "action"),
    )


def write_units(
    norm_stats: Mapping[str, Any], key: str | None, units: Processor, action_dims: int, proprio_dims: int
) -> dict[str, Any]:
    """Return norm_stats with the scales of `units` under `key`; "mmrl" if that is None. Other entries are unchanged.

    Whatever made a scale, its range goes to both pairs of statistics, since these are what the original reads.
    """
    name = key or NEW
    before = dict(norm_stats.get(name) or {})
    entry = {**before, "action": {**before.get("action", {}), **_statistics(units.action, action_dims)}}
    if proprio_dims:
        scale = units.vectors.get("proprio", Scale())
        entry["proprio"] = {**before.get("proprio", {}), **_statistics(scale, proprio_dims)}
    return {**norm_stats, name: entry}


def _statistics(scale: Scale, dims: int) -> dict[str, Any]:
    """Return ranges and mask that make a scale; an identity is masked in every dimension."""
    mask = np.asarray(scale.mask or (False,) * dims, bool)
    offset, width = (np.asarray(scale.offset or (0.0,) * dims), np.asarray(scale.width or (1.0,) * dims))
    low, high = np.where(mask, offset - width, -1.0).tolist(), np.where(mask, offset + width, 1.0).tolist()
    pairs = {name: value for kind in ("quantile", "min_max") for name, value in zip(STATISTICS[kind], (low, high))}
    return {**pairs, "mask": mask.tolist()}
