"""Task of a dataset of transitions, which gives an off-policy method its sizes without a simulator."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.datasets.base import Dataset
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.task import OfflineTask


@dataclass(frozen=True)
class TransitionTask(OfflineTask):
    """Task of recorded transitions: all episodes are learned from, those that failed too.

    `every` holds no episode out. The box of the actions is that of the recorded ones: a method that stays near its data
    needs no other. A dimension that never changes gets a box of width 2 around its value.
    """

    @functools.cached_property
    def episode_indices(self) -> tuple[int, ...]:
        dataset = open_dataset(self.path)
        count = len(dataset)
        dataset.close()
        return tuple(range(count))

    def sizes(self) -> dict[str, Any]:
        """Constructor arguments of a policy with real actions."""
        dataset = open_dataset(self.path)
        sizes = {**super().sizes(), "actions": dataset.features["action"].shape[0]}
        if not dataset.features["action"].dtype.startswith("float"):
            return {**sizes, "kind": "categorical"}
        low, high = find_action_box(dataset)
        dataset.close()
        return {**sizes, "kind": "gaussian", "low": low, "high": high}


def find_action_box(dataset: Dataset) -> tuple[list[float], list[float]]:
    """Smallest and largest recorded action of each dimension."""
    low, high = np.inf, -np.inf
    for number in range(len(dataset)):
        actions = dataset.read(number).actions
        low, high = np.minimum(low, actions.min(0)), np.maximum(high, actions.max(0))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            dataset[number]  # refuses the number by its control step
    constant = low == high
    return (low - constant).tolist(), (high + constant).tolist()
