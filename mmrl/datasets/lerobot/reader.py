"""Reads LeRobotDataset v3.0 without lerobot, one episode at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.base import Dataset, Feature, Statistics, plain_name
from mmrl.datasets.extras import arrow, parquet
from mmrl.datasets.frames import Clip, Pictures
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.table import as_array, read_tasks
from mmrl.datasets.recorded import Recorded
from mmrl.datasets.video import duration_frames

_TOLERANCE_S = 1e-3  # of a timestamp, seconds: float32 after some hours, not a wrong rate


class LeRobotDataset(Dataset):
    """A folder of LeRobotDataset v3.0. Opening reads meta/ only.

    Args:
        path: the folder that has meta/info.json.
    """

    format = "LeRobotDataset v3.0"
    fps: float

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.info = self._json(layout.INFO, "is this the folder of a dataset?")
        version = self.info.get("codebase_version")
        if version != layout.VERSION:
            older = str(version).startswith(("v1", "v2"))
            how = (
                "convert it once, with lerobot installed: python -m lerobot.datasets.v30.convert_dataset_v21_to_v30 "
                "--repo-id=NAME (lerobot/scripts in newer releases)"
                if older
                else "this is newer than what can be read here"
            )
            raise ValueError(
                f"{self.path / layout.INFO}: codebase_version is {version!r}, not {layout.VERSION!r}; {how}"
            )
        self.fps = float(self.info["fps"])
        self.columns = {key: layout.read_feature(plain) for key, plain in self.info["features"].items()}
        absent = [key for key in (layout.ACTION, *layout.INDEX) if key not in self.columns]
        if absent:
            raise ValueError(f"{self.path / layout.INFO}: features lack {absent}")
        own = self.path / layout.OWN
        kept = json.loads(own.read_text()) if own.is_file() else {}
        self.contract = kept.get("contract") or None
        seen = [key for key in self.columns if key.startswith("observation.") and self._usable(key)]
        self.names = {key: kept.get("names", {}).get(key, plain_name(key)) for key in seen}
        self.features = {self.names[key]: self.columns[key] for key in seen} | {"action": self.columns[layout.ACTION]}
        self.tasks = read_tasks(self._file(layout.TASKS))
        self.episodes = self._episodes()
        self._open: tuple[Path, Any] | None = None

    def _usable(self, key: str) -> bool:
        return self.columns[key].camera or self.columns[key].dtype not in ("string", "language")

    def __len__(self) -> int:
        return len(self.episodes)

    def lengths(self) -> list[int]:
        return [entry["length"] for entry in self.episodes]

    def success(self, number: int) -> bool | None:
        entry = self.episodes[number]
        return entry["success"] if "success" in entry else super().success(number)

    def statistics(self) -> dict[str, Statistics]:
        """meta/stats.json, by the names of the observations."""
        kept = self._json(layout.STATS, f"`mmrl data inspect {self.path} write=true` computes it")
        names = {**self.names, layout.ACTION: "action"}
        return {
            names[key]: {name: np.asarray(value, np.float64) for name, value in statistics.items()}
            for key, statistics in kept.items()
            if key in names
        }

    def read(self, number: int) -> Recorded:
        entry = self.episodes[number]
        where = f"{self.path} episode {number}"
        table = self._table(entry, where)
        count = table.num_rows
        data = {k: as_array(table[k], self.columns[k]) for k in table.column_names if self._plain(k)}
        self._check_times(data["timestamp"], where)
        observations = {name: self._observed(key, table, data, entry, where) for key, name in self.names.items()}
        done, cut = (data.get(key, np.zeros(count, bool))[-1] for key in ("next.done", "next.truncated"))
        if not cut and done and "next.success" in data and "next.truncated" not in data:
            cut = not data["next.success"].any()  # a recording without that column that failed ran out of time
        success = bool(data["next.success"].any()) if "next.success" in data else None
        return Recorded(
            actions=data[layout.ACTION].reshape(count, *self.columns[layout.ACTION].shape),
            observations=observations,
            instruction=self.tasks.get(int(data["task_index"][0]), ""),
            rewards=data.get("next.reward"),
            terminated=bool(done and not cut),
            truncated=bool(cut),
            success=success,
            seed=entry.get("seed"),
            executed=data.get(layout.EXECUTED),
            where=where,
        )

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    # ---------------------------------------------------------------- files

    def _plain(self, key: str) -> bool:
        return key in self.columns and self.columns[key].dtype not in ("image", "video", "string", "language")

    def _table(self, entry: dict[str, Any], where: str) -> Any:
        """The rows of one episode: of its data file only the row groups that hold them."""
        place = {"chunk_index": entry["data/chunk_index"], "file_index": entry["data/file_index"]}
        path = self._file(self.info["data_path"].format(**place))
        if self._open is None or self._open[0] != path:
            self.close()
            try:
                self._open = (path, parquet().ParquetFile(path))
            except arrow().ArrowInvalid as error:
                raise ValueError(f"{path}: not a readable parquet file ({error}); copy it again") from error
        file = self._open[1]
        absent = [k for k, f in self.columns.items() if f.dtype != "video" and k not in file.schema_arrow.names]
        if absent:
            raise ValueError(
                f"{path}: columns {absent} of meta/info.json are missing; copy it again, or drop them there"
            )
        groups = [g for g in range(file.num_row_groups) if _may_hold(file, g, entry["episode_index"])]
        table = file.read_row_groups(groups)
        table = table.filter(arrow().compute.equal(table["episode_index"], entry["episode_index"]))
        if table.num_rows != entry["length"]:
            raise ValueError(f"{where}: {path} holds {table.num_rows} rows of it, meta/episodes says {entry['length']}")
        return table

    def _check_times(self, seconds: np.ndarray, where: str) -> None:
        wrong = np.flatnonzero(np.abs(seconds - np.arange(len(seconds)) / self.fps) > _TOLERANCE_S)
        if wrong.size:
            step = int(wrong[0])
            per_second = (len(seconds) - 1) / max(float(seconds[-1] - seconds[0]), 1e-9)
            raise ValueError(
                f"{where}: control step {step} has timestamp {seconds[step]:.4f} s, at fps={self.fps:g} it is "
                f"{step / self.fps:.4f} s; the timestamps say about {per_second:.4g} per second: set fps in "
                f"{self.path / layout.INFO}"
            )

    def _observed(self, key: str, table: Any, data: dict[str, np.ndarray], entry: dict[str, Any], where: str) -> Any:
        feature = self.columns[key]
        if feature.dtype == "video":
            return self._clip(key, feature, entry, where)
        if feature.dtype == "image":
            return Pictures([row["bytes"] for row in table[key].to_pylist()], feature.shape, f"{where}, {key}")
        return data[key].reshape(len(data[key]), *feature.shape)

    def _clip(self, key: str, feature: Feature, entry: dict[str, Any], where: str) -> Clip:
        place = {"chunk_index": entry[f"videos/{key}/chunk_index"], "file_index": entry[f"videos/{key}/file_index"]}
        path = self._file(self.info["video_path"].format(video_key=key, **place))
        start = float(entry[f"videos/{key}/from_timestamp"])
        there, needed = duration_frames(path), round(start * self.fps) + entry["length"]
        if there and there < needed:  # 0 where the file does not say
            raise ValueError(
                f"{where}: {path} has {there} frames, the episode needs frames up to {needed}: the video was cut; "
                "copy it again from its source, or leave the episode out"
            )
        return Clip(path, start, entry["length"], self.fps, feature.shape)

    def _episodes(self) -> list[dict[str, Any]]:
        """meta/episodes in order, without the statistics of each."""
        paths = sorted(self.path.glob("meta/episodes/*/*.parquet"))
        if not paths:
            raise ValueError(f"{self.path}: no meta/episodes/chunk-000/file-000.parquet; the recording was not closed")
        entries: list[dict[str, Any]] = []
        for path in paths:
            names = [n for n in parquet().read_schema(path).names if not n.startswith("stats/")]
            entries += parquet().read_table(path, columns=names).to_pylist()
        entries.sort(key=lambda entry: entry["episode_index"])
        for name, found in {"episodes": len(entries), "frames": sum(e["length"] for e in entries)}.items():
            if self.info.get(f"total_{name}", found) != found:
                said = self.info[f"total_{name}"]
                raise ValueError(f"{self.path / layout.INFO}: total_{name} is {said}, meta/episodes has {found}")
        return entries

    def _file(self, name: str) -> Path:
        path = self.path / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; copy the dataset again from its source")
        return path

    def _json(self, name: str, hint: str) -> dict[str, Any]:
        path = self.path / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; {hint}")
        try:
            return json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: not JSON ({error})") from error


def _may_hold(file: Any, group: int, episode: int) -> bool:
    """Whether a row group's statistics allow that it holds rows of the episode."""
    described = file.metadata.row_group(group)
    for i in range(described.num_columns):
        if described.column(i).path_in_schema == "episode_index":
            kept = described.column(i).statistics
            return kept is None or not kept.has_min_max or kept.min <= episode <= kept.max
    return True
