"""Write recorded episodes as a LeRobotDataset v3.0."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmrl.datasets.base import Feature, Statistics
from mmrl.datasets.extras import arrow, parquet
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.table import to_table, write_tasks
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.datasets.statistics import camera_statistics, sample_images, vector_statistics
from mmrl.datasets.video_file import VideoWriter


class LeRobotWriter:
    """Writer of a new LeRobotDataset: `add` appends an episode, `close` writes the metadata.

    Args:
        folder: folder that does not exist yet or is empty.
        fps: control steps per second.
        video: store cameras as H.264 files (small, lossy) instead of PNG in the tables (lossless).
        contract: contract of the simulator, stored in meta/mmrl.json.
        robot: type of the robot.
        crf: constant rate factor of the videos; smaller values give better quality and larger files.
    """

    def __init__(
        self,
        folder: str | Path,
        fps: float,
        video: bool = True,
        contract: Mapping[str, Any] | None = None,
        robot: str | None = None,
        crf: int = 18,
    ):
        self.folder, self.fps, self.video, self.robot, self.crf = Path(folder), fps, video, robot, crf
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file; give the folder of a new dataset")
        if self.folder.exists() and any(self.folder.iterdir()):
            raise ValueError(f"{self.folder} is not empty; give the folder of a new dataset")
        if not fps > 0:
            raise ValueError(f"a dataset needs its control steps per second, got fps={fps}")
        parquet()  # fail before episodes are recorded
        self.folder.mkdir(parents=True, exist_ok=True)
        self.contract = dict(contract or {})
        self.features: dict[str, Feature] = {}
        self.keys: dict[str, str] = {}  # column of each observation, by its name
        self.tasks: dict[str, int] = {}
        self.episodes: list[dict[str, Any]] = []
        self.frames = 0
        self._rows: dict[str, list[np.ndarray]] = {}  # rows for the statistics of the whole dataset
        self._table: Any = None
        self._place, self._bytes = (0, 0), 0
        self._videos: dict[str, tuple[VideoWriter, tuple[int, int]]] = {}

    def add(self, episode: OfflineEpisode) -> None:
        """Append an episode; it must have the columns of the first one."""
        if not self.features:
            self._begin(episode)
        columns = self._columns(episode)
        entry: dict[str, Any] = {
            "episode_index": len(self.episodes),
            "tasks": episode.texts,
            "length": len(episode),
            "seed": episode.seed,
            "success": episode.success,
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + len(episode),
        }
        for key in [key for key, feature in self.features.items() if feature.dtype == "video"]:
            entry |= self._append_video(key, columns.pop(key))
        chunk, file = self._write(columns)
        entry |= {"data/chunk_index": chunk, "data/file_index": file}
        entry |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        for key, statistics in self._statistics(episode).items():
            entry |= {f"stats/{key}/{name}": value.tolist() for name, value in statistics.items()}
        self.episodes.append(entry)
        self.frames += len(episode)

    def _begin(self, episode: OfflineEpisode) -> None:
        """Derive the columns from the first episode."""
        observations = {name: rows for name, rows in episode.observations.items()}
        for name, rows in observations.items():
            camera = str(rows.dtype) == "uint8" and len(rows.shape) == 4
            dtype = ("video" if self.video else "image") if camera else str(rows.dtype)
            feature = Feature(dtype, tuple(rows.shape[1:]) or (1,))
            self.keys[name] = layout.name_column(name, feature, tuple(observations))
            self.features[self.keys[name]] = feature
        actions = (layout.ACTION, episode.actions), (layout.EXECUTED, episode.executed)
        for key, rows in actions:
            if rows is not None:
                self.features[key] = Feature(str(rows.dtype), tuple(rows.shape[1:]) or (1,))
        if episode.interventions is not None:
            self.features[layout.INTERVENTION] = Feature("bool", (1,))
        outcomes = {"next.reward": episode.rewards, "next.success": episode.success}
        self.features |= {k: f for k, f in layout.OUTCOME.items() if outcomes.get(k, 0) is not None} | layout.INDEX

    def _columns(self, episode: OfflineEpisode) -> dict[str, Any]:
        """Columns [T, ...] of an episode; images that are stored in tables as PNG bytes."""
        count, first = len(episode), self.frames
        texts = episode.instructions or (episode.instruction,) * count
        last = np.arange(count) == count - 1
        # one entry per control step, under the names of the format
        columns: dict[str, Any] = {self.keys.get(name, name): rows for name, rows in episode.observations.items()}
        columns |= {
            layout.ACTION: episode.actions,
            layout.EXECUTED: episode.executed,
            layout.INTERVENTION: episode.interventions,
            "next.reward": episode.rewards,
            "next.done": last & (episode.terminated or episode.truncated),
            "next.truncated": last & episode.truncated,
            "next.success": None if episode.success is None else last & episode.success,
            "timestamp": (np.arange(count) / self.fps).astype(np.float32),
            "frame_index": np.arange(count),
            "episode_index": np.full(count, len(self.episodes)),
            "index": np.arange(first, first + count),
            "task_index": np.array([self.tasks.setdefault(text, len(self.tasks)) for text in texts]),
        }
        columns = {key: rows for key, rows in columns.items() if rows is not None}
        # every episode has the columns and shapes of the first
        if columns.keys() != self.features.keys():
            odd = sorted(columns.keys() ^ self.features.keys())
            raise ValueError(f"{episode.where}: columns {odd} are in some episodes and not in others")
        for key, feature in self.features.items():
            shape = tuple(np.shape(columns[key])[1:]) or (1,)
            if shape != feature.shape:
                raise ValueError(f"{episode.where}: {key} is {shape} per step, in the first episode {feature.shape}")
            if feature.dtype == "image":
                columns[key] = [_png(image) for image in columns[key]]
        return columns

    def _append_video(self, key: str, images: Any) -> dict[str, Any]:
        """Append images to the camera's video; returns the file and the times for meta/episodes."""
        writer, place = self._videos.get(key, (None, (0, 0)))
        if writer is not None and writer.path.exists() and writer.path.stat().st_size > layout.VIDEO_MB * 2**20:
            writer.close()
            writer, place = None, layout.next_file(*place)
        if writer is None:
            path = self.folder / layout.VIDEO.format(video_key=key, chunk_index=place[0], file_index=place[1])
            writer = VideoWriter(path, self.fps, self.features[key].shape, self.crf)
        self._videos[key] = (writer, place)
        first = writer.add(images[step] for step in range(len(images)))
        values = (*place, first / self.fps, writer.frames / self.fps)
        names = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
        return {f"videos/{key}/{name}": value for name, value in zip(names, values)}

    def _write(self, columns: dict[str, Any]) -> tuple[int, int]:
        """Write the episode as one row group; begins a new file when the current one exceeds its maximum size."""
        table = to_table(columns, self.features)
        if self._table is not None and self._bytes + table.nbytes > layout.DATA_MB * 2**20:
            self._table.close()
            self._table, self._place, self._bytes = None, layout.next_file(*self._place), 0
        if self._table is None:
            path = self.folder / layout.DATA.format(chunk_index=self._place[0], file_index=self._place[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            self._table = parquet().ParquetWriter(path, table.schema, compression="snappy")
        self._table.write_table(table)
        self._bytes += table.nbytes
        return self._place

    def _statistics(self, episode: OfflineEpisode) -> dict[str, Statistics]:
        """Compute statistics of the episode, and store its rows for those of the whole dataset."""
        out = {}
        columns = {layout.ACTION: episode.actions, layout.EXECUTED: episode.executed}
        columns |= {self.keys[name]: rows for name, rows in episode.observations.items()}
        for key, rows in columns.items():
            if rows is None:
                continue
            rows = sample_images(rows) if self.features[key].camera else np.asarray(rows).reshape(len(rows), -1)
            self._rows.setdefault(key, []).append(rows)
            out[key] = self._of(key, rows)
        return out

    def _of(self, key: str, rows: np.ndarray) -> Statistics:
        return camera_statistics(rows) if self.features[key].camera else vector_statistics(rows)

    def close(self) -> None:
        """Write the metadata of all episodes. A dataset that was not closed cannot be read."""
        if not self.episodes:
            raise ValueError(f"{self.folder}: no episode was written")
        self._table.close()
        for writer, _ in self._videos.values():
            writer.close()
        path = self.folder / layout.EPISODES.format(chunk_index=0, file_index=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet().write_table(arrow().Table.from_pylist(self.episodes), path)
        write_tasks(self.folder / layout.TASKS, self.tasks)
        whole = {key: self._of(key, np.concatenate(parts)) for key, parts in self._rows.items()}
        self._json(layout.STATS, {k: {n: v.tolist() for n, v in s.items()} for k, s in whole.items()})
        self._json(layout.OWN, {"contract": self.contract, "names": {key: name for name, key in self.keys.items()}})
        self._json(layout.INFO, self._info())

    def _info(self) -> dict[str, Any]:
        return {
            "codebase_version": layout.VERSION,
            "robot_type": self.robot,
            "total_episodes": len(self.episodes),
            "total_frames": self.frames,
            "total_tasks": len(self.tasks),
            "chunks_size": layout.FILES_PER_CHUNK,
            "data_files_size_in_mb": layout.DATA_MB,
            "video_files_size_in_mb": layout.VIDEO_MB,
            "fps": int(self.fps) if float(self.fps).is_integer() else self.fps,
            "splits": {"train": f"0:{len(self.episodes)}"},
            "data_path": layout.DATA,
            "video_path": layout.VIDEO if self._videos else None,
            "features": {key: layout.describe_feature(feature) for key, feature in self.features.items()},
        }

    def _json(self, name: str, value: Any) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2) + "\n")


def _png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="png")
    return buffer.getvalue()
