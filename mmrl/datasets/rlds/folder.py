"""RldsFolder: the episodes of a folder that TensorFlow Datasets has written in the format RLDS."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.frames import EncodedImages
from mmrl.datasets.offline_episodes import OfflineEpisode, split_instructions
from mmrl.datasets.rlds.records import read_example, read_records
from mmrl.files.strict_json import need_object, quote, read_json_object

FEATURES, INFO = "features.json", "dataset_info.json"
_SHARD = re.compile(r".+-(?P<split>[\w.]+)\.tfrecord(-\d+-of-\d+)?")
_REMEDY = "copy the dataset again from its source"
_OBSERVATION, _INSTRUCTION = "observation/", "language_instruction"
_MOST = 2**27  # numbers of one feature in one step


@dataclass(frozen=True)
class StepFeature:
    """What a step has under one name.

    Args:
        kind: "numbers", "image" (encoded RGB) or "text"; "other" is not read.
        shape: of the value in a step.
    """

    kind: str
    shape: tuple[int, ...]


class RldsFolder:
    """Episodes of one split, read one after the other.

    Observations are the vectors, numbers and RGB images of `steps/observation`, by their names; nested ones are joined
    by a dot. The instruction is `language_instruction` of the step or of its observation. Depth images, texts of other
    names and embeddings outside of the observation are left out: `unread` names them.

    Source: Ramos et al., "RLDS: an Ecosystem to Generate, Share and Use Datasets in Reinforcement Learning", 2021,
    arXiv:2111.02767, section 3.

    Args:
        path: folder with features.json and the files of records.
        split: part of the dataset.
        actions: parts of the action to join, where it has named parts; empty for an action that is one vector.

    Raises:
        ValueError: with the file, what is wrong with the description; or a split or part that is not there.
    """

    def __init__(self, path: Path, split: str = "train", actions: Sequence[str] = ()):
        self.path = path
        file = path / FEATURES
        described = need_object(read_json_object(file, _REMEDY), str(file), _REMEDY)
        steps = _entry(described, "featuresDict", "features", "steps", place=f"{file}: steps")
        inner = _entry(steps, "sequence", "feature", place=f"{file}: steps")
        self.features = dict(_walk(inner, "", f"{file}: steps"))
        self.actions = self._find_actions(list(actions), file)
        shards: dict[str, list[Path]] = {}
        for shard in sorted(path.glob("*.tfrecord*")):
            if match := _SHARD.fullmatch(shard.name):
                shards.setdefault(match["split"], []).append(shard)
        if split not in shards:
            raise ValueError(f"{path}: no split {split!r}; its files of records have {sorted(shards) or 'none'}")
        self.shards = shards[split]
        self.counts = self._stated_counts(split)
        self.observations = {
            name.removeprefix(_OBSERVATION).replace("/", "."): name
            for name, feature in self.features.items()
            if name.startswith(_OBSERVATION) and feature.kind in ("numbers", "image")
        }
        texts = [_OBSERVATION + _INSTRUCTION, _INSTRUCTION]
        self.instruction = next((name for name in texts if self._kind(name) == "text"), None)
        read = {*self.observations.values(), *self.actions, self.instruction, "reward", "is_terminal", "is_last"}
        self.unread = sorted(set(self.features) - read - {"is_first", "discount"})

    def _stated_counts(self, split: str) -> list[int] | None:
        """Records of each file as dataset_info.json states them; None without that file.

        Raises:
            ValueError: there are other files than their names or dataset_info.json say.
        """
        names = [re.search(r"-of-(\d+)$", shard.name) for shard in self.shards]
        whole = max((int(match[1]) for match in names if match), default=len(self.shards))
        if whole != len(self.shards):
            raise ValueError(
                f"{self.path}: {len(self.shards)} of the {whole} files of split {split!r} are there; {_REMEDY}"
            )
        file = self.path / INFO
        if not file.is_file():
            return None
        splits = read_json_object(file, _REMEDY).get("splits", [])
        stated = [part for part in splits if isinstance(part, dict) and part.get("name") == split]
        counts = [int(count) for count in stated[0].get("shardLengths", [])] if stated else []
        return counts if len(counts) == len(self.shards) else None

    def _kind(self, name: str) -> str | None:
        return self.features[name].kind if name in self.features else None

    def _find_actions(self, parts: list[str], file: Path) -> list[str]:
        """The names of the action's parts, each a vector or a number."""
        names = [f"action/{part}" for part in parts] or ["action"]
        action_names = sorted(name for name in self.features if name.split("/")[0] == "action")
        for name in names:
            if self._kind(name) != "numbers" or len(self.features[name].shape) > 1:
                raise ValueError(
                    f"{file}: steps/{name} is no vector of numbers, of {action_names}: action=PART,PART joins parts"
                )
        return names

    def __iter__(self) -> Iterator[OfflineEpisode]:
        for index, shard in enumerate(self.shards):
            count = 0
            for record in read_records(shard):
                place = f"{shard} record {count}"
                yield self._episode(read_example(record, place), place).refuse_broken()
                count += 1
            if self.counts is not None and count != self.counts[index]:
                raise ValueError(f"{shard} has {count} records, {INFO} says {self.counts[index]}; {_REMEDY}")

    def _episode(self, example: Mapping[str, Any], place: str) -> OfflineEpisode:
        parts = [self._numbers(example, name, place) for name in self.actions]
        joined = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
        actions = joined.astype(np.float32) if joined.dtype.kind == "f" else joined
        observations = {short: self._rows(example, name, place) for short, name in self.observations.items()}
        texts: list[str] = []
        if self.instruction is not None:
            texts = [
                _decode(text, f"{place}, {self.instruction}") for text in _values(example, self.instruction, place)
            ]
        rewards = self._numbers(example, "reward", place) if self._kind("reward") == "numbers" else None
        ends = self._numbers(example, "is_terminal", place) if self._kind("is_terminal") == "numbers" else None
        terminal = ends is not None and bool(ends[-1])
        return OfflineEpisode(
            actions=actions,
            observations=observations,
            **split_instructions(texts),
            rewards=None if rewards is None else rewards.reshape(-1).astype(np.float32),
            terminated=terminal,
            truncated=not terminal,
            where=place,
        )

    def _rows(self, example: Mapping[str, Any], name: str, place: str) -> Any:
        if self.features[name].kind == "image":
            return EncodedImages(list(_values(example, name, place)), self.features[name].shape, f"{place}, {name}")
        rows = self._numbers(example, name, place)
        return rows.astype(np.float32) if rows.dtype.kind == "f" else rows

    def _numbers(self, example: Mapping[str, Any], name: str, place: str) -> np.ndarray:
        """Numbers of every step [T, ...]."""
        values, shape = _values(example, name, place), self.features[name].shape
        size = math.prod(shape)
        if not isinstance(values, np.ndarray) or len(values) % size or not len(values):
            raise ValueError(
                f"{place}: steps/{name} has {len(values)} values, {FEATURES} says {list(shape)} in each step; {_REMEDY}"
            )
        return values.reshape(len(values) // size, *shape)


def _values(example: Mapping[str, Any], name: str, place: str) -> Any:
    if f"steps/{name}" not in example:
        raise ValueError(f"{place}: steps/{name} of {FEATURES} is missing; {_REMEDY}")
    return example[f"steps/{name}"]


def _decode(text: bytes, place: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}: no UTF-8; {_REMEDY}") from error


def _entry(entry: Any, *names: str, place: str) -> Any:
    for name in names:
        entry = need_object(entry, place, _REMEDY).get(name)
    return need_object(entry, place, _REMEDY)


def _walk(entry: Mapping[str, Any], name: str, place: str) -> Iterator[tuple[str, StepFeature]]:
    """The leaves below an entry of features.json, by their path."""
    if "featuresDict" in entry:
        for part, inner in _entry(entry, "featuresDict", "features", place=place).items():
            yield from _walk(
                need_object(inner, f"{place}/{part}", _REMEDY), f"{name}/{part}".strip("/"), f"{place}/{part}"
            )
    elif "text" in entry:
        yield name, StepFeature("text", ())
    elif "image" in entry:
        image = need_object(entry["image"], place, _REMEDY)
        shape = _shape(image, place)
        rgb = len(shape) == 3 and shape[2] == 3 and image.get("dtype", "uint8") == "uint8"
        yield name, StepFeature("image" if rgb else "other", shape)
    elif "tensor" in entry:
        tensor = need_object(entry["tensor"], place, _REMEDY)
        dtype = tensor.get("dtype")
        if dtype == "string":
            yield name, StepFeature("text", ())
        else:
            plain = tensor.get("encoding", "none") == "none" and _is_number(dtype)
            yield name, StepFeature("numbers" if plain else "other", _shape(tensor, place))
    else:
        yield name, StepFeature("other", ())


def _is_number(dtype: Any) -> bool:
    try:
        return np.dtype(dtype).kind in "biuf"
    except TypeError:
        return False


def _shape(entry: Mapping[str, Any], place: str) -> tuple[int, ...]:
    stated = need_object(entry.get("shape", {}), place, _REMEDY).get("dimensions", [])
    try:
        shape = tuple(int(size) for size in stated)
    except (TypeError, ValueError):
        shape = (0,)
    if any(size < 1 for size in shape) or math.prod(shape) > _MOST:
        raise ValueError(f"{place}: shape {quote(stated)} must be whole numbers above 0; sizes that vary are not read")
    return shape
