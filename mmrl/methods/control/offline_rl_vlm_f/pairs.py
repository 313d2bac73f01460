"""Pairs of frames of a recording, and their labels on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.datasets.base import Dataset
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.files.atomic import write_file

FIRST, SECOND, UNCLEAR = 0, 1, -1
"""Labels of a pair: the goal is better achieved in the first frame or in the second, or it is unclear in which."""


@dataclass(frozen=True)
class FramePair:
    """Two frames that are compared.

    Attributes:
        first: uint8 [H, W, C], or a vector float32 [D].
        second: of the same shape.
        goal: in words.
        rewards: recorded rewards of the two transitions that end in the frames, for scripts; None if not recorded.
    """

    first: np.ndarray
    second: np.ndarray
    goal: str
    rewards: tuple[float, float] | None = None


def draw_pairs(lengths: Sequence[int], count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pairs of transitions uniformly from all transitions of a recording, two different ones each.

    Args:
        lengths: transitions of each episode.
        count: P, of pairs.
        rng: drawn from.

    Returns:
        int64 [P, 2, 2]: episode and control step of either transition.
    """
    stops = np.cumsum(lengths)
    if stops[-1] < 2:
        raise ValueError("pairs of frames need a recording of at least two transitions")
    first = rng.integers(stops[-1], size=count)
    second = (first + rng.integers(1, stops[-1], size=count)) % stops[-1]
    places = np.stack([first, second], axis=1)
    episodes = np.searchsorted(stops, places, side="right")
    return np.stack([episodes, places - (stops - lengths)[episodes]], axis=-1)


def frames_after(episode: OfflineEpisode, name: str) -> np.ndarray:
    """Observation after every transition [T, ...]; the last one's own where no final observation was recorded.

    Args:
        episode: of the recording.
        name: of the observation.

    Raises:
        ValueError: the episode has no such observation.
    """
    if name not in episode.observations:
        raise ValueError(
            f"{episode.where}: it has no observation {name!r} for the reward model; it has "
            f"{sorted(episode.observations)}: set data.relabelling.observation to one of them"
        )
    rows = np.asarray(episode.observations[name])
    last = rows[-1] if episode.final is None else np.asarray(episode.final.get(name, rows[-1]))
    return np.concatenate([rows[1:], last[None].astype(rows.dtype)])


def find_goal(dataset: Dataset, goal: str | None) -> str:
    """Return the goal in words: the given one, or the only instruction of the recording.

    Raises:
        ConfigError: no goal is given, and the recording has no instruction or several.
    """
    if goal is not None:
        return goal
    texts = {text for number in range(len(dataset)) for text in dataset.read(number).texts}
    if len(texts) != 1 or texts == {""}:
        raise ConfigError(
            f"{dataset.path}: its instructions are {sorted(texts)[:5]}, not one goal; set "
            "data.relabelling.goal='the goal in words'"
        )
    return texts.pop()


def read_pairs(dataset: Dataset, places: np.ndarray, name: str, goal: str) -> list[FramePair]:
    """Read the frames of pairs, one episode after the other.

    Args:
        dataset: the recording.
        places: int64 [P, 2, 2], episode and control step of either transition.
        name: of the observation that holds the frames.
        goal: in words.
    """
    flat = places.reshape(-1, 2)
    frames: dict[int, np.ndarray] = {}
    rewards: dict[int, float] = {}
    for number in np.unique(flat[:, 0]).tolist():
        episode = dataset[number]
        after = frames_after(episode, name)
        for row in np.flatnonzero(flat[:, 0] == number).tolist():
            frames[row] = after[flat[row, 1]]
            if episode.rewards is not None:
                rewards[row] = float(episode.rewards[flat[row, 1]])
    pairs = []
    for i in range(0, len(flat), 2):
        recorded = (rewards[i], rewards[i + 1]) if {i, i + 1} <= rewards.keys() else None
        pairs.append(FramePair(frames[i], frames[i + 1], goal, recorded))
    return pairs


def write_labels(path: Path, places: np.ndarray, labels: Sequence[int], goal: str) -> None:
    """Write one line of JSON a pair: `first` and `second`, each an episode and a control step, `label` and `goal`."""
    rows = [
        {"first": first, "second": second, "label": int(label), "goal": goal}
        for (first, second), label in zip(places.tolist(), labels, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_labels(path: Path, lengths: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """Read the pairs int64 [P, 2, 2] and their labels from a file of `write_labels`.

    Raises:
        ConfigError: a line is no pair of transitions of this recording, or its label is not 0, 1 or -1.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"data.relabelling.labels={path}: {error.strerror}; name a file of labels") from error
    places, labels = [], []
    for number, line in enumerate(lines, start=1):
        row = _parse(line)
        ends = [row.get("first"), row.get("second")]
        if row.get("label") not in (FIRST, SECOND, UNCLEAR) or not all(_is_place(end, lengths) for end in ends):
            raise ConfigError(
                f"{path} line {number}: {line[:120]} is no label of this recording; write first and second as "
                "[episode, control step] and label as 0 (the first is better), 1 or -1 (unclear)"
            )
        places.append(ends)
        labels.append(int(row["label"]))
    if not labels:
        raise ConfigError(f"data.relabelling.labels={path}: it has no line; name a file of labels")
    return np.array(places, dtype=np.int64), labels


def _parse(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _is_place(end: Any, lengths: Sequence[int]) -> bool:
    whole = isinstance(end, list) and len(end) == 2 and all(type(part) is int for part in end)
    return whole and 0 <= end[0] < len(lengths) and 0 <= end[1] < lengths[end[0]]
