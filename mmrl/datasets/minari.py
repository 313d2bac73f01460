"""Read HDF5 files of Minari without the package minari."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.hdf5.dataset import HDF5Dataset, read_actions, read_final, read_observations
from mmrl.datasets.offline_episodes import OfflineEpisode, split_instructions
from mmrl.files.strict_json import quote, read_json_object

FILE = "main_data.hdf5"


class MinariDataset(HDF5Dataset):
    """Dataset in a Minari file: groups episode_0, episode_1, ...; the observation after the last action is
    `OfflineEpisode.final`.

    A flat observation space is named "state", entries of a dictionary keep their names; the first text is the
    instruction. Minari does not store the duration of a control step.

    Args:
        path: main_data.hdf5, or the folder that contains data/main_data.hdf5.
    """

    format = "Minari HDF5"
    fps = None

    def __init__(self, path: str | Path):
        places = [Path(path), Path(path) / FILE, Path(path) / "data" / FILE]
        file = next((place for place in places if place.is_file()), None)
        if file is None:
            raise ValueError(f"{path}: no data/{FILE} there; Minari datasets in Arrow files cannot be read")
        super().__init__(file)
        beside = file.parent / "metadata.json"
        remedy = "copy the dataset again"
        self.metadata = read_json_object(beside, remedy, finite=False) if beside.is_file() else {}
        total = self.metadata.get("total_episodes", len(self))
        if total != len(self):
            raise ValueError(f"{beside}: total_episodes is {quote(total)}, {file.name} has {len(self)}; copy it again")

    def find(self) -> list[str]:
        numbered = [name for name in self.file if name.startswith("episode_")]
        wrong = [name for name in numbered if not name.removeprefix("episode_").isdecimal()]
        if wrong:
            raise ValueError(f"{self.path}: group {quote(wrong[0])} has no number; rename it to episode_N")
        return sorted(numbered, key=lambda name: int(name.removeprefix("episode_")))

    def read_group(self, group: Any, where: str) -> OfflineEpisode:
        actions = read_actions(self.need(group, "actions"))
        observations, texts = read_observations(self.need(group, "observations"), len(actions))
        terminations, truncations = (self.need(group, name)[:] for name in ("terminations", "truncations"))
        for name, rows in (("terminations", terminations), ("truncations", truncations)):
            if rows.shape != (len(actions),):
                problem = f"{name} have shape {list(rows.shape)}, there are {len(actions)} actions"
                raise ValueError(f"{where}: {problem}; copy the file again from its source, or mend it")
        seed = group.attrs.get("seed")
        return OfflineEpisode(
            actions=actions,
            observations=observations,
            **split_instructions(texts),
            rewards=self.need(group, "rewards")[:].astype(np.float32),
            terminated=bool(terminations[-1]),
            truncated=bool(truncations[-1]),
            success=_success(group),
            seed=None if seed is None else int(seed),
            final=read_final(group["observations"], len(actions)),
            where=where,
        )


def _success(group: Any) -> bool | None:
    """Whether infos/success or infos/is_success was true in any step; None if neither is stored."""
    infos = group.get("infos")
    for name in ("success", "is_success"):
        if hasattr(infos, "keys") and name in infos:
            return bool(np.asarray(infos[name][:]).any())
    return None
