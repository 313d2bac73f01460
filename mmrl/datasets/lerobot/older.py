"""Convert a LeRobotDataset v2.0 or v2.1 to v3.0: every episode keeps its files, under other names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.datasets.extras import arrow, parquet
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.info import check_sizes, read_features, read_fps, read_pattern, resolve_inside
from mmrl.datasets.lerobot.table import open_table, write_tasks
from mmrl.files.foreign import SMALL, check_regular, read_foreign
from mmrl.files.strict_json import need_object, quote, read_json_object

VERSIONS = ("v2.0", "v2.1")
EPISODES, TASKS = "meta/episodes.jsonl", "meta/tasks.jsonl"
DATA = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_FIELDS = {"episode_chunk": 0, "episode_index": 0, "video_key": "camera"}
_REMEDY = "copy the dataset again from its source"
_DROPPED = ("total_chunks", "total_videos", "data_path", "video_path", "chunks_size", "codebase_version")


class OlderLeRobot:
    """Folder of a LeRobotDataset v2.0 or v2.1, whose episodes have a table and a video for each camera.

    Args:
        path: folder that contains meta/info.json.

    Raises:
        ValueError: with the file and line, what is wrong with the metadata, or another version.
    """

    def __init__(self, path: Path):
        self.path, file = path, path / layout.INFO
        self.info = read_json_object(file, _REMEDY)
        version = self.info.get("codebase_version")
        if version not in VERSIONS:
            newer = f"; those of {layout.VERSION} are read as they are" if version == layout.VERSION else ""
            raise ValueError(
                f"{file}: codebase_version is {quote(version)}; {' and '.join(VERSIONS)} are converted{newer}"
            )
        check_sizes(self.info, file)
        self.fps, self.columns = read_fps(self.info, file), read_features(self.info, file)
        self.chunk_size = self.info.get("chunks_size", layout.FILES_PER_CHUNK)
        if not isinstance(self.chunk_size, int):
            raise ValueError(f"{file}: chunks_size is {quote(self.chunk_size)}; it must be a whole number; {_REMEDY}")
        self.videos = [key for key, feature in self.columns.items() if feature.dtype == "video"]
        self.data_path = read_pattern(self.info, "data_path", _FIELDS, DATA, file)
        self.video_path = read_pattern(self.info, "video_path", _FIELDS, "", file) if self.videos else None
        self.tasks = self._tasks()
        self.episodes = self._rows(EPISODES, {"episode_index": int, "length": int, "tasks": list})
        numbers = [row["episode_index"] for row in self.episodes]
        if numbers != list(range(len(numbers))) or not numbers:
            raise ValueError(f"{path / EPISODES}: episodes must be numbered 0, 1, 2, ... in their order; {_REMEDY}")
        counts = {"episodes": len(numbers), "frames": sum(row["length"] for row in self.episodes)}
        for name, count in counts.items():
            if self.info.get(f"total_{name}", count) != count:
                stated = quote(self.info[f"total_{name}"])
                raise ValueError(f"{file}: total_{name} is {stated}, {EPISODES} has {count}; {_REMEDY}")
        for number, row in enumerate(self.episodes):
            if not all(isinstance(text, str) for text in row["tasks"]):
                raise ValueError(f"{path / EPISODES}: tasks of episode {number} are {quote(row['tasks'])}; {_REMEDY}")

    def _tasks(self) -> dict[str, int]:
        """Number of each instruction, each once."""
        rows = self._rows(TASKS, {"task": str, "task_index": int})
        tasks = {row["task"]: row["task_index"] for row in rows}
        numbers = set(tasks.values())
        if min(len(tasks), len(numbers)) < len(rows) or not all(0 <= number < 2**31 for number in numbers):
            raise ValueError(
                f"{self.path / TASKS}: each text and each task_index from 0 stands there once, got "
                f"{quote([[row['task_index'], row['task']] for row in rows])[:200]}; {_REMEDY}"
            )
        return tasks

    def _rows(self, name: str, kinds: Mapping[str, type]) -> list[dict[str, Any]]:
        file = self.path / name
        if not file.is_file():
            raise ValueError(f"{file} is missing; {_REMEDY}")
        rows = []
        for number, line in enumerate(read_foreign(file, _REMEDY, SMALL).splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = need_object(json.loads(line), f"{file}, line {number}", _REMEDY)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ValueError(f"{file}, line {number}: no JSON ({error}); {_REMEDY}") from error
            for key, kind in kinds.items():
                if not isinstance(row.get(key), kind) or isinstance(row.get(key), bool):
                    raise ValueError(f"{file}, line {number}: {key} is {quote(row.get(key))}; {_REMEDY}")
            rows.append(row)
        return rows

    def files(self, number: int) -> dict[str, Path]:
        """The files of an episode: "data" and, by column, its videos.

        Raises:
            ValueError: one is missing or leads outside of the folder, or the table has another number of rows.
        """
        place = {"episode_chunk": number // self.chunk_size, "episode_index": number}
        names = {"data": self.data_path.format(**place)}
        names |= {key: str(self.video_path).format(**place, video_key=key) for key in self.videos}
        paths = {key: resolve_inside(self.path, name, f"a file of {self.path}") for key, name in names.items()}
        for path in paths.values():
            if not path.is_file():
                raise ValueError(f"{path} of episode {number} is missing; {_REMEDY}")
            check_regular(path, _REMEDY)
        rows, stated = open_table(paths["data"]).metadata.num_rows, self.episodes[number]["length"]
        if rows != stated:
            raise ValueError(
                f"{paths['data']} has {rows} rows, {EPISODES} says {stated} of episode {number}; {_REMEDY}"
            )
        return paths


def convert(source: OlderLeRobot, folder: Path) -> None:
    """Write the dataset as v3.0 into a new folder: data files and videos byte by byte, metadata anew.

    Statistics are not written: those of v2 belong to episodes, see `mmrl.datasets.statistics`.

    Args:
        source: the dataset.
        folder: that does not exist yet or is empty.

    Raises:
        ValueError: the folder has files, or a file of the dataset is missing or not what its metadata say.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty; give the folder of a new dataset")
    files_of = [source.files(number) for number in range(len(source.episodes))]  # before anything is written
    entries, first = [], 0
    for number, (row, files) in enumerate(zip(source.episodes, files_of)):
        chunk, file = divmod(number, layout.FILES_PER_CHUNK)
        length, place = row["length"], {"chunk_index": chunk, "file_index": file}
        _copy(files["data"], folder / layout.DATA.format(**place))
        entry = {
            "episode_index": number,
            "tasks": row["tasks"],
            "length": length,
            "dataset_from_index": first,
            "dataset_to_index": first + length,
            **{f"data/{name}": value for name, value in place.items()},
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        }
        for key in source.videos:
            _copy(files[key], folder / layout.VIDEO.format(video_key=key, **place))
            times = {"from_timestamp": 0.0, "to_timestamp": length / source.fps}
            entry |= {f"videos/{key}/{name}": value for name, value in (place | times).items()}
        entries.append(entry)
        first += length
    path = folder / layout.EPISODES.format(chunk_index=0, file_index=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet().write_table(arrow().Table.from_pylist(entries), path)
    write_tasks(folder / layout.TASKS, source.tasks)
    info = {key: value for key, value in source.info.items() if key not in _DROPPED}
    info |= {
        "codebase_version": layout.VERSION,
        "total_episodes": len(entries),
        "total_frames": first,
        "chunks_size": layout.FILES_PER_CHUNK,
        "data_files_size_in_mb": layout.DATA_MB,
        "video_files_size_in_mb": layout.VIDEO_MB,
        "data_path": layout.DATA,
        "video_path": layout.VIDEO if source.videos else None,
    }
    (folder / layout.INFO).write_text(json.dumps(info, indent=2) + "\n")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
