"""Read HDF5 files of robomimic (and of LIBERO) without the package robomimic."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.hdf5.dataset import HDF5Dataset, read_actions, read_attribute, read_final, read_observations
from mmrl.datasets.offline_episodes import OfflineEpisode, split_instructions
from mmrl.files.strict_json import need_object, quote


class RobomimicDataset(HDF5Dataset):
    """Dataset in a robomimic file: groups data/demo_0, data/demo_1, ... with obs, actions and optional rewards, dones.

    An episode with a reward above zero is a success, unless env_kwargs.reward_shaping is set. The instruction is the
    episode's, else the file's, else empty.

    Args:
        path: the .hdf5 file.
        split: use only the demonstrations listed in mask/<split>; None for all.
    """

    format = "robomimic HDF5"

    def __init__(self, path: str | Path, split: str | None = None):
        self.split = split
        super().__init__(path)
        kwargs = self._kwargs
        self.fps = None
        if "control_freq" in kwargs:
            fps = kwargs["control_freq"]
            if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < math.inf:
                raise ValueError(f"{self.path}: control_freq of env_args is {quote(fps)}; it must be a number above 0")
            self.fps = float(fps)

    @property
    def _kwargs(self) -> dict[str, Any]:
        stated = read_attribute(self.root, "env_args").get("env_kwargs", {})
        return need_object(stated, f"{self.path}: env_kwargs of env_args", "copy the file again from its source")

    @property
    def root(self) -> Any:
        return self.need(self.file, "data")

    @property
    def splits(self) -> list[str]:
        return sorted(self.file.get("mask", {}))

    def find(self) -> list[str]:
        data = self.root
        if not hasattr(data, "keys"):
            raise ValueError(f"{self.path}/data: is an array, not a group of demonstrations; copy the file again")
        names = sorted(data, key=lambda name: int(re.sub(r"\D", "", name) or -1))
        if self.split is None:
            return names
        if self.split not in self.splits:
            raise ValueError(f"{self.path}: no mask/{self.split}; there are {self.splits}")
        split_names = {name.decode() for name in self.file["mask"][self.split][:]}
        return [name for name in names if name in split_names]

    def read_group(self, group: Any, where: str) -> OfflineEpisode:
        actions = read_actions(self.need(group, "actions"))
        observations, texts = read_observations(self.need(group, "obs"), len(actions))
        rewards = group["rewards"][:].astype(np.float32) if "rewards" in group else None
        shaped = self._kwargs.get("reward_shaping", False)
        language, whole = read_attribute(group, "ep_meta").get("lang"), read_attribute(self.root, "problem_info")
        stated = language or whole.get("language_instruction", "")
        whole_text = " ".join(stated) if isinstance(stated, list) else stated
        return OfflineEpisode(
            actions=actions,
            observations=observations,
            **split_instructions(texts or [whole_text]),
            rewards=rewards,
            terminated=bool(group["dones"][-1]) if "dones" in group else False,
            success=None if rewards is None or shaped else bool((rewards > 0).any()),
            final=read_final(group["next_obs"], len(actions) - 1) if "next_obs" in group else None,
            where=where,
        )
