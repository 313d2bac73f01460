"""Statistics of every dimension of a dataset, and detection of anomalies that matter for normalisation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.base import Dataset, Statistics
from mmrl.datasets.offline_episodes import LARGEST, OfflineEpisode
from mmrl.files.strict_json import need_object, quote

NOT_FINITE, TOO_LARGE = "not finite", f"beyond {LARGEST:g}"
"""Anomalies that make a dataset unusable for training."""

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
MAX_IMAGES = 20  # images per episode that enter a camera's statistics
_TAIL = 3.0  # an extreme this many times as far from the median as the quantile is called a long tail
_ENDS = 0.9  # fraction of values near the two ends that identifies a gripper dimension
_NEAR = 0.05  # of the range
_FEW = 3  # maximum number of distinct values of a gripper that opens, closes or rests


def vector_statistics(values: np.ndarray) -> Statistics:
    """Statistics of finite rows [T, D], each float64 [D], computed over all rows at once."""
    values = np.asarray(values, np.float64).reshape(len(values), -1)
    quantiles = np.quantile(values, list(QUANTILES.values()), axis=0)
    still = values.min(0) == values.max(0)
    return {
        "min": values.min(0),
        "max": values.max(0),
        "mean": np.where(still, values[0], values.mean(0)),
        "std": np.where(still, 0.0, values.std(0)),  # rounding of the mean would give a constant a tiny std
        "count": np.array([len(values)]),
        **dict(zip(QUANTILES, quantiles)),
    }


def camera_statistics(images: np.ndarray) -> Statistics:
    """Statistics of images uint8 [T, H, W, C] divided by 255, each float64 [C, 1, 1]."""
    pixels = vector_statistics(np.asarray(images).reshape(-1, images.shape[-1]) / 255.0)
    shaped = {name: value.reshape(-1, 1, 1) for name, value in pixels.items() if name != "count"}
    return {**shaped, "count": np.array([len(images)])}


def read_statistics(
    stated: Mapping[str, Any], sizes: Mapping[str, int | None], file: Path, remedy: str
) -> dict[str, Statistics]:
    """Read the statistics of the named columns from a file's content, as float64; refuse values that are not finite.

    Args:
        stated: the file's content, by column, then by name of the statistic.
        sizes: D of each requested column that is a vector; None for a camera.
        file: for messages.
        remedy: the end of every message.
    """
    out: dict[str, Statistics] = {}
    for key in [key for key in stated if key in sizes]:
        out[key] = {}
        for name, values in need_object(stated[key], f"{file}: {key}", remedy).items():
            place, size = f"{file}: {name} of {key}", sizes[key]
            try:
                numbers = np.asarray(values, np.float64)
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"{place} is {quote(values)}, not numbers; {remedy}") from error
            if not np.isfinite(numbers).all():
                raise ValueError(f"{place} is not finite: {quote(values)}; {remedy}")
            if name != "count" and size is not None and numbers.size != size:
                raise ValueError(
                    f"{place} has {numbers.size} numbers, meta/info.json says {size}; correct the shape there, or "
                    f"{remedy}"
                )
            out[key][name] = numbers
    return out


def sample_images(rows: object, max_images: int = MAX_IMAGES) -> np.ndarray:
    """Select at most `max_images` images, evenly spaced."""
    count = len(rows)  # type: ignore[arg-type]
    return np.asarray(rows[np.unique(np.linspace(0, count - 1, min(max_images, count)).round().astype(int))])  # type: ignore[index]


def compute_statistics(
    dataset: Dataset, episodes: Iterable[OfflineEpisode] | None = None, cameras: bool = False
) -> dict[str, Statistics]:
    """Compute the statistics of every vector (and camera) from the episodes; rows that are not finite are left out."""
    rows: dict[str, list[np.ndarray]] = {}
    for episode in episodes if episodes is not None else map(dataset.read, range(len(dataset))):
        for name, values in {"action": episode.actions, **episode.observations}.items():
            if not dataset.features[name].camera:
                values = np.asarray(values).reshape(len(values), -1)
                rows.setdefault(name, []).append(values[np.isfinite(values).all(axis=1)])
            elif cameras:
                rows.setdefault(name, []).append(sample_images(values))
    out = {}
    for name, parts in rows.items():
        joined = np.concatenate(parts)
        if len(joined):
            out[name] = (camera_statistics if dataset.features[name].camera else vector_statistics)(joined)
    return out


def find_anomalies(values: np.ndarray) -> list[list[str]]:
    """Find anomalies in every dimension of rows [T, D] that matter for normalisation."""
    values = np.asarray(values, np.float64).reshape(len(values), -1)
    return [_flags(column) for column in values.T]


def _flags(column: np.ndarray) -> list[str]:
    finite = column[np.isfinite(column)]
    flags = [f"{len(column) - len(finite)} {NOT_FINITE}"] if len(finite) < len(column) else []
    if large := int((np.abs(finite) > LARGEST).sum()):
        flags.append(f"{large} {TOO_LARGE}")
    if not len(finite):
        return flags
    low, high = finite.min(), finite.max()
    if low == high:
        return [*flags, "zero range"]
    near = _NEAR * (high - low)
    bottom, top = (finite <= low + near).mean(), (finite >= high - near).mean()
    few = len(finite) > 10 * _FEW and len(np.unique(finite)) <= _FEW
    if few or (bottom + top >= _ENDS and min(bottom, top) > 0.01):
        return [*flags, "gripper-like"]
    q01, q50, q99 = np.quantile(finite, [0.01, 0.5, 0.99])
    if q01 == q99:
        return [*flags, "zero range between q01 and q99"]
    if high - q50 > _TAIL * max(q99 - q50, 1e-12) or q50 - low > _TAIL * max(q50 - q01, 1e-12):
        flags.append("long tail")
    return flags
