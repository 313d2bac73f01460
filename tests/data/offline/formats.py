"""One recording in every format that can be read, whole or broken in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mmrl.datasets.offline_episodes import OfflineEpisode
from tests.datasets.episodes import write as write_lerobot

DATA = "data/chunk-000/file-000.parquet"


@dataclass(frozen=True)
class Log:
    """Episodes of 3 observed numbers and 2 actions.

    Attributes:
        lengths: of the episodes.
        ends: "done" or "time", of each.
        broken: value that is written, by (column, episode, row): the columns "state", "action" and "reward"; row T of
            "state" is the observation after the last action.
        without: columns that are left out.
        short: columns whose last row is left out.
    """

    lengths: tuple[int, ...] = (4, 3, 5)
    ends: tuple[str, ...] = ("time", "done", "time")
    broken: dict[tuple[str, int, int], float] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    def columns(self, number: int) -> dict[str, np.ndarray]:
        """Arrays of an episode: "state" [T + 1, 3], the others [T, ...], flags included."""
        rng, steps = np.random.default_rng(number), self.lengths[number]
        last = np.arange(steps) == steps - 1
        columns = {
            "state": rng.normal(size=(steps + 1, 3)).astype(np.float32),
            "action": rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
            "reward": rng.normal(size=steps).astype(np.float32),
            **{end: last & (self.ends[number] == end) for end in ("done", "time")},
        }
        for (name, episode, row), value in self.broken.items():
            if episode == number:
                columns[name].reshape(len(columns[name]), -1)[row, 0] = value
        return columns

    def cut(self, name: str, rows: np.ndarray) -> np.ndarray:
        return rows[:-1] if name in self.short else rows


def _flat(log: Log) -> dict[str, np.ndarray]:
    """D4RL's arrays, with next observations."""
    episodes = [log.columns(number) for number in range(len(log.lengths))]
    parts = {
        "observations": [each["state"][:-1] for each in episodes],
        "next_observations": [each["state"][1:] for each in episodes],
        "actions": [each["action"] for each in episodes],
        "rewards": [each["reward"] for each in episodes],
        "terminals": [each["done"] for each in episodes],
        "timeouts": [each["time"] for each in episodes],
    }
    joined = {name: log.cut(name, np.concatenate(rows)) for name, rows in parts.items()}
    return {name: rows for name, rows in joined.items() if name not in log.without}


def d4rl(folder: Path, log: Log) -> Path:
    with h5py.File(folder / "log.hdf5", "w") as file:
        for name, rows in _flat(log).items():
            file[name] = rows
    return folder / "log.hdf5"


def npz(folder: Path, log: Log) -> Path:
    np.savez_compressed(folder / "log.npz", **_flat(log))
    return folder / "log.npz"


def _groups(file: Any, log: Log, prefix: str, name: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> None:
    for number in range(len(log.lengths)):
        group = file.create_group(f"{prefix}{number}")
        for key, rows in name(log.columns(number)).items():
            if key not in log.without:
                group[key] = log.cut(key, rows) if number == 1 else rows


def minari(folder: Path, log: Log) -> Path:
    (folder / "data").mkdir()
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        _groups(
            file,
            log,
            "episode_",
            lambda columns: {
                "observations": columns["state"],
                "actions": columns["action"],
                "rewards": columns["reward"],
                "terminations": columns["done"],
                "truncations": columns["time"],
            },
        )
    return folder


def robomimic(folder: Path, log: Log) -> Path:
    with h5py.File(folder / "log.hdf5", "w") as file:
        _groups(
            file.create_group("data"),
            log,
            "demo_",
            lambda columns: {
                "obs/state": columns["state"][:-1],
                "next_obs/state": columns["state"][1:],
                "actions": columns["action"],
                "rewards": columns["reward"],
                "dones": columns["done"].astype(int),
            },
        )
    return folder / "log.hdf5"


def lerobot(folder: Path, log: Log) -> Path:
    """Written whole and then broken, as the writer refuses what is broken."""
    whole = [replace(log, broken={}).columns(number) for number in range(len(log.lengths))]
    episodes = [
        OfflineEpisode(
            each["action"],
            {"state": each["state"][:-1]},
            rewards=each["reward"],
            terminated=bool(each["done"].any()),
            truncated=bool(each["time"].any()),
        )
        for each in whole
    ]
    write_lerobot(folder / "log", episodes)
    table = pq.read_table(folder / "log" / DATA)
    starts = np.cumsum([0, *log.lengths])
    keys = {"state": "observation.state", "action": "action", "reward": "next.reward"}
    for (name, episode, row), value in log.broken.items():
        place = table.column_names.index(keys[name])
        rows = np.array(table[keys[name]].to_pylist(), np.float32)
        rows.reshape(len(rows), -1)[starts[episode] + row, 0] = value
        column = pa.array(rows.tolist(), table.schema.field(place).type)
        table = table.set_column(place, table.schema.field(place), column)
    if "rewards" in log.without:
        table = table.drop_columns(["next.reward"])
        info = folder / "log" / "meta" / "info.json"
        stated = json.loads(info.read_text())
        del stated["features"]["next.reward"]
        info.write_text(json.dumps(stated))
    if log.short:
        table = table.slice(0, len(table) - 1)
    pq.write_table(table, folder / "log" / DATA)
    return folder / "log"


FORMATS = {"d4rl": d4rl, "npz": npz, "minari": minari, "robomimic": robomimic, "lerobot": lerobot}
