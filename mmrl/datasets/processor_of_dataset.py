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
    """The values of `policy.processor` that normalise a dataset's action and observed vectors.

    Args:
        path: of the dataset.
        action: how the action is scaled.
        vectors: how observed vectors are scaled.
        unscaled_dims: dimensions of the action that are not scaled, such as a gripper's or one that never moves.
    """
    dataset = open_dataset(path)
    known = dataset.statistics()
    if "action" not in known:
        raise ValueError(f"{path}: no statistics of the action; `mmrl data inspect {path} write=true` computes them")
    dims = dataset.features["action"].shape[0]
    wrong = [dim for dim in unscaled_dims if not 0 <= dim < dims]
    if wrong:
        raise ValueError(f"{path}: the action has {dims} dimensions, so {wrong} cannot be left unscaled")
    mask = [dim not in unscaled_dims for dim in range(dims)]
    scales = {
        name: Scale.of(vectors, known[name], name=f"{path}: observation {name!r}")
        for name, feature in dataset.features.items()
        if name in known and name != "action" and feature.dtype.startswith("float") and len(feature.shape) == 1
    }
    dataset.close()
    return Processor(vectors=scales, action=Scale.of(action, known["action"], mask, f"{path}: action")).to_dict()
