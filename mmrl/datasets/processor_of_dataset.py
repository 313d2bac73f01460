"""Build a policy's processor from the statistics of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.datasets.formats import open_dataset
from mmrl.policies.processor import Processor
from mmrl.policies.vla.scale import Kind, Scale


def build_processor(
    path: str,
    action: Kind = "quantile",
    vectors: Kind = "mean_std",
    unscaled_dims: Sequence[int] = (),
) -> dict[str, Any]:
    """Compute `policy.processor` for a dataset: scales that normalise its actions and observed vectors.

    Args:
        path: folder or file of the dataset.
        action: normalisation of actions.
        vectors: normalisation of observed vectors.
        unscaled_dims: dimensions of the action to leave unscaled, such as a gripper or a constant.
    """
    dataset = open_dataset(path)
    statistics = dataset.statistics()
    if "action" not in statistics:
        raise ValueError(f"{path}: no statistics of the action; `mmrl data inspect {path} write=true` computes them")
    dims = dataset.features["action"].shape[0]
    wrong = [dim for dim in unscaled_dims if not 0 <= dim < dims]
    if wrong:
        raise ValueError(f"{path}: the action has {dims} dimensions, so {wrong} cannot be left unscaled")
    mask = [dim not in unscaled_dims for dim in range(dims)]
    scales = {
        name: Scale.of(vectors, statistics[name], name=f"{path}: observation {name!r}")
        for name, feature in dataset.features.items()
        if name in statistics and name != "action" and feature.dtype.startswith("float") and len(feature.shape) == 1
    }
    dataset.close()
    return Processor(vectors=scales, action=Scale.of(action, statistics["action"], mask, f"{path}: action")).to_dict()
