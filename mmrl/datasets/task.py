"""Task whose prompts are the episodes of a dataset, for runs without a simulator."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.types import Episode, Prompt, Task
from mmrl.datasets.formats import open_dataset


@dataclass(frozen=True)
class OfflineTask(Task):
    """Task of an offline dataset: every prompt is one episode; every `every`-th episode is held out.

    Args:
        path: folder or file of the dataset.
        every: period of the held-out episodes; with 10, episodes 9, 19, 29, ... are held out.
        split: "train" or "held_out".
    """

    path: str
    every: int = 10
    split: str = "train"

    def __post_init__(self) -> None:
        if self.every < 2:
            raise ValueError(f"task.every must be at least 2, got {self.every}: 2 holds every second episode out")

    @property
    def name(self) -> str:  # type: ignore[override]
        return "offline"

    @functools.cached_property
    def episode_indices(self) -> tuple[int, ...]:
        """Indices of the split's episodes that did not fail."""
        dataset = open_dataset(self.path)
        held_out = self.split == "held_out"
        mine = (n for n in range(len(dataset)) if (n % self.every == self.every - 1) is held_out)
        indices = tuple(n for n in mine if dataset.success(n) is not False)
        dataset.close()
        if not indices:
            raise ValueError(f"task.path={self.path}: no episode of split {self.split!r} that did not fail")
        return indices

    def __len__(self) -> int:
        return len(self.episode_indices)

    def __getitem__(self, index: int) -> Prompt:
        if not 0 <= index < len(self):
            raise IndexError(f"task {self.name!r} has {len(self)} episodes in {self.split}, asked for {index}")
        return Prompt(key=f"{self.name}/{self.split}/{index}", info={"episode_index": self.episode_indices[index]})

    def on(self, split: str) -> OfflineTask:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        reported = {k: float(v) for k, v in episode.info.get("scores", {}).items()}
        return {**reported, "return": float(sum(turn.reward for turn in episode.turns))}

    def contract(self) -> dict[str, Any]:
        """Contract of the simulator that recorded the episodes; empty if the dataset does not state it."""
        return dict(open_dataset(self.path).contract or {})

    def sizes(self) -> dict[str, Any]:
        """Constructor arguments of a policy that follow from the dataset, as `Sim.sizes`."""
        dataset = open_dataset(self.path)
        sizes = {"action_dims": dataset.features["action"].shape[0]}
        vectors = {n: f for n, f in dataset.features.items() if n != "action" and not f.camera and len(f.shape) == 1}
        for name, argument in (("proprio", "proprio_dims"), ("state", "observation_dims")):
            if name in vectors:
                sizes[argument] = vectors[name].shape[0]
        if "chunk" in (dataset.contract or {}):
            sizes["chunk"] = dataset.contract["chunk"]  # type: ignore[index]
        dataset.close()
        return sizes
