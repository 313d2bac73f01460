"""Read LeRobotDataset v3.0 without the package lerobot, one episode at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.base import Dataset, Feature, Statistics, plain_name
from mmrl.datasets.extras import arrow
from mmrl.datasets.frames import EncodedImages, VideoFrames
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.episodes import read_episodes
from mmrl.datasets.lerobot.info import (
    UNREAD,
    check_sizes,
    check_version,
    read_features,
    read_fps,
    read_own,
    read_paths,
    resolve_inside,
)
from mmrl.datasets.lerobot.table import open_table, read_table, read_tasks, to_array
from mmrl.datasets.offline_episodes import OfflineEpisode, find_unusable, split_instructions
from mmrl.datasets.statistics import read_statistics
from mmrl.datasets.video_file import duration_frames
from mmrl.files.strict_json import read_json_object

_TOLERANCE_S = 1e-3  # tolerance of a timestamp, seconds: allows float32 rounding after some hours, not a wrong rate


class LeRobotDataset(Dataset):
    """Dataset in a LeRobotDataset v3.0 folder. The constructor reads meta/ only.

    Args:
        path: folder that contains meta/info.json.
        statistics: validate meta/stats.json; a missing file is an error only when statistics are read.
    """

    format = "LeRobotDataset v3.0"
    fps: float

    def __init__(self, path: str | Path, statistics: bool = True):
        self.path = Path(path)
        file = self.path / layout.INFO
        if not file.is_file():
            raise ValueError(f"{file} is missing; is this the folder of a dataset?")
        self.info = read_json_object(file, "copy the dataset again from its source")
        check_version(self.info, file)
        check_sizes(self.info, file)
        self.fps, self.columns = read_fps(self.info, file), read_features(self.info, file)
        self.data_path, self.video_path = read_paths(self.info, file)
        mmrl_file = self.path / layout.OWN
        content = read_json_object(mmrl_file, "delete it or copy it again", finite=False) if mmrl_file.is_file() else {}
        self.contract, names = read_own(content, mmrl_file)
        keys = [key for key in self.columns if key.startswith("observation.") and self._usable(key)]
        self.names = {key: names.get(key, plain_name(key)) for key in keys}
        self.features = {self.names[key]: self.columns[key] for key in keys} | {"action": self.columns[layout.ACTION]}
        videos = [key for key in keys if self.columns[key].dtype == "video"]
        if videos and self.video_path is None:
            raise ValueError(f"{file}: {videos[0]} is a video, but there is no video_path; copy the dataset again")
        self.tasks = read_tasks(self._file(layout.TASKS))
        self.episodes = read_episodes(self.path, self.info, file, videos)
        if statistics and (self.path / layout.STATS).exists():
            self.statistics()
        self._open: tuple[Path, Any] | None = None

    def _usable(self, key: str) -> bool:
        return self.columns[key].camera or self.columns[key].dtype not in UNREAD

    def __len__(self) -> int:
        return len(self.episodes)

    def lengths(self) -> list[int]:
        return [entry["length"] for entry in self.episodes]

    def success(self, number: int) -> bool | None:
        entry = self.episodes[number]
        return entry["success"] if "success" in entry else super().success(number)

    def statistics(self) -> dict[str, Statistics]:
        """Read meta/stats.json; keys are the names of the observations."""
        file, remedy = self.path / layout.STATS, f"`mmrl data inspect {self.path} write=true` computes it"
        if not file.is_file():
            raise ValueError(f"{file} is missing; {remedy}")
        names = {**self.names, layout.ACTION: "action"}
        sizes = {key: None if self.columns[key].camera else math.prod(self.columns[key].shape) for key in names}
        stated = read_statistics(read_json_object(file, remedy, finite=False), sizes, file, remedy)
        return {names[key]: statistics for key, statistics in stated.items()}

    def check(self) -> None:
        """Refuse values of any data file that are not finite or larger than `LARGEST`. Images are not read."""
        read = {*self.names, layout.ACTION, layout.EXECUTED, "next.reward"}
        for place in sorted({(entry["data/chunk_index"], entry["data/file_index"]) for entry in self.episodes}):
            path = self._data_file(*place)
            file = open_table(path)
            columns = [name for name in file.schema_arrow.names if name in read and self._plain(name)]
            names = [name for name in columns if self.columns[name].dtype.startswith("float")]
            table = read_table(path, ["episode_index", *names], file=file)
            numbers, order = table["episode_index"].to_pylist(), [entry["episode_index"] for entry in self.episodes]
            for name in names:
                rows = to_array(table[name], self.columns[name], f"{path}, column {name!r}")
                for row in find_unusable(rows)[:1]:
                    self[order.index(numbers[row[0]])]  # refuses the episode by its control step

    def read(self, number: int) -> OfflineEpisode:
        entry = self.episodes[number]
        where = f"{self.path} episode {number}"
        table = self._table(entry, where)
        count = table.num_rows
        data = {
            key: to_array(table[key], self.columns[key], f"{where}, column {key!r}")
            for key in table.column_names
            if self._plain(key)
        }
        self._check_times(data["timestamp"], where)
        observations = {name: self._read_feature(key, table, data, entry, where) for key, name in self.names.items()}
        done, cut = (data.get(key, np.zeros(count, bool))[-1] for key in ("next.done", "next.truncated"))
        if not cut and done and "next.success" in data and "next.truncated" not in data:
            cut = not data["next.success"].any()  # a recording without that column that failed ran out of time
        success = bool(data["next.success"].any()) if "next.success" in data else None
        return OfflineEpisode(
            actions=data[layout.ACTION].reshape(count, *self.columns[layout.ACTION].shape),
            observations=observations,
            **split_instructions(self._instructions(data["task_index"], where)),
            rewards=data.get("next.reward"),
            terminated=bool(done and not cut),
            truncated=bool(cut),
            success=success,
            seed=entry.get("seed"),
            executed=data.get(layout.EXECUTED),
            interventions=_read_flags(data.get(layout.INTERVENTION)),
            where=where,
        )

    def _instructions(self, indices: np.ndarray, where: str) -> list[str]:
        """Look up the text of every control step by its task index [T]."""
        if absent := sorted(set(indices.tolist()) - set(self.tasks)):
            raise ValueError(f"{where}: task_index {absent[0]} is not in {layout.TASKS}; copy the dataset again")
        return [self.tasks[index] for index in indices.tolist()]

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    # ---------------------------------------------------------------- files

    def _plain(self, key: str) -> bool:
        return key in self.columns and self.columns[key].dtype not in ("image", "video", *UNREAD)

    def _table(self, entry: dict[str, Any], where: str) -> Any:
        """Read the rows of one episode; only the row groups that contain them are read."""
        path = self._data_file(entry["data/chunk_index"], entry["data/file_index"])
        if self._open is None or self._open[0] != path:
            self.close()
            self._open = (path, open_table(path))
        file = self._open[1]
        absent = [k for k, f in self.columns.items() if f.dtype != "video" and k not in file.schema_arrow.names]
        if absent:
            raise ValueError(
                f"{path}: columns {absent} of meta/info.json are missing; copy it again, or drop them there"
            )
        groups = [g for g in range(file.num_row_groups) if _may_hold(file, g, entry["episode_index"])]
        table = read_table(path, groups=groups, file=file)
        table = table.filter(arrow().compute.equal(table["episode_index"], entry["episode_index"]))
        if table.num_rows != entry["length"]:
            raise ValueError(f"{where}: {path} holds {table.num_rows} rows of it, meta/episodes says {entry['length']}")
        return table

    def _check_times(self, seconds: np.ndarray, where: str) -> None:
        wrong = np.flatnonzero(~(np.abs(seconds - np.arange(len(seconds)) / self.fps) <= _TOLERANCE_S))
        if wrong.size:
            step = int(wrong[0])
            per_second = (len(seconds) - 1) / max(float(seconds[-1] - seconds[0]), 1e-9)
            raise ValueError(
                f"{where}: control step {step} has timestamp {seconds[step]:.4f} s, at fps={self.fps:g} it is "
                f"{step / self.fps:.4f} s; the timestamps say about {per_second:.4g} per second: set fps in "
                f"{self.path / layout.INFO}"
            )

    def _read_feature(
        self, key: str, table: Any, data: dict[str, np.ndarray], entry: dict[str, Any], where: str
    ) -> Any:
        feature = self.columns[key]
        if feature.dtype == "video":
            return self._clip(key, feature, entry, where)
        if feature.dtype == "image":
            return EncodedImages(_read_images(table[key], f"{where}, {key}"), feature.shape, f"{where}, {key}")
        return data[key].reshape(len(data[key]), *feature.shape)

    def _clip(self, key: str, feature: Feature, entry: dict[str, Any], where: str) -> VideoFrames:
        place = {"chunk_index": entry[f"videos/{key}/chunk_index"], "file_index": entry[f"videos/{key}/file_index"]}
        path = self._file(str(self.video_path).format(video_key=key, **place))
        start = float(entry[f"videos/{key}/from_timestamp"])
        frames, needed = duration_frames(path), round(start * self.fps) + entry["length"]
        if frames and frames < needed:  # 0 if the file does not state it
            raise ValueError(
                f"{where}: {path} has {frames} frames, the episode needs frames up to {needed}: the video was cut; "
                "copy it again from its source, or leave the episode out"
            )
        return VideoFrames(path, start, entry["length"], self.fps, feature.shape)

    def _data_file(self, chunk: int, file: int) -> Path:
        return self._file(self.data_path.format(chunk_index=chunk, file_index=file))

    def _file(self, name: str) -> Path:
        path = resolve_inside(self.path, name, f"a file of {self.path}")
        if not path.is_file():
            raise ValueError(f"{path} is missing; copy the dataset again from its source")
        return path


def _read_flags(rows: np.ndarray | None) -> np.ndarray | None:
    """The column `intervention` as bool [T]; None without one, or where another program means something else by it."""
    return rows.astype(bool) if rows is not None and rows.ndim == 1 else None


def _read_images(column: Any, where: str) -> list[bytes]:
    """Encoded bytes of every image of a column."""
    rows = column.to_pylist()
    if wrong := [step for step, row in enumerate(rows) if not isinstance(row, dict) or not row.get("bytes")]:
        raise ValueError(f"{where}: control step {wrong[0]} has no image; leave the episode out or mend it")
    return [row["bytes"] for row in rows]


def _may_hold(file: Any, group: int, episode: int) -> bool:
    """Whether a row group may contain rows of the episode, by its parquet statistics."""
    described = file.metadata.row_group(group)
    for i in range(described.num_columns):
        if described.column(i).path_in_schema == "episode_index":
            statistics = described.column(i).statistics
            return statistics is None or not statistics.has_min_max or statistics.min <= episode <= statistics.max
    return True
