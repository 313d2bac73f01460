"""`mmrl weights`: how training changed the weight matrices of a run, by the kind of layer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.commands.options import WEIGHTS_OPTIONS, parse_count, parse_number, parse_switch, split_options
from mmrl.core.errors import ConfigError
from mmrl.evaluation.statistics.weight_change import (
    WeightChange,
    measure_change,
    overlap_of_changes,
    unchanged_entries,
)
from mmrl.files.atomic import write_file
from mmrl.runs.checkpoint_file import CheckpointError, read_weights
from mmrl.runs.writable import writable

PREFIX = "policy."
"""Of the policy's weights in a checkpoint; other models, such as critics, are not compared."""


def print_weights(arguments: Sequence[str]) -> dict[str, Any]:
    """Print a row for each kind of matrix that two checkpoints share, and one for all; return the rows by kind.

    Raises:
        ConfigError: an argument is wrong, or the checkpoints have no matrix in common.
    """
    options, places = split_options(arguments, WEIGHTS_OPTIONS)
    if len(places) != 2:
        raise ConfigError(
            f"give two checkpoints, as in mmrl weights BEFORE.ckpt AFTER.ckpt, got {places}; options are "
            f"{', '.join(f'{name}=' for name in WEIGHTS_OPTIONS)}"
        )
    rank, share = parse_count(options, "rank", 8, 1), parse_number(options, "share", 0.1, 0)
    if not 0 < share <= 1:
        raise ConfigError(f"share={options['share']}: must be in (0, 1]")
    trust = parse_switch(options, "trust", False)
    # changes of each matrix, summarised by kind
    before, after = (read_matrices(place, trust) for place in places)
    check_shapes(before, after, places)
    changes = {name: measure_change(before[name], after[name], rank, share) for name in before}
    rows = summarise(changes)
    print(format_changes(rows))
    result: dict[str, Any] = {"before": places[0], "after": places[1], "rank": rank, "share": share, "kinds": rows}
    # changed entries that a second run has too
    if "other" in options:
        other = read_matrices(options["other"], trust)
        check_shapes(before, other, [places[0], options["other"]])
        result["jaccard"] = _jaccard(before, after, other)
        print(f"changed entries in both {places[1]} and {options['other']}, of those in one: {result['jaccard']:.4g}")
    if "out" in options:
        matrices = {name: asdict(change) for name, change in changes.items()}
        with writable(Path(options["out"]), "out"):
            write_file(Path(options["out"]), json.dumps(_plain({**result, "matrices": matrices}), indent=1) + "\n")
        print(f"written: {options['out']}")
    return result


def read_matrices(place: str, trust: bool = False) -> dict[str, Tensor]:
    """Read the matrices of the policy in a checkpoint file, or in checkpoints/last.ckpt of a run's folder."""
    path = Path(place)
    path = path / "checkpoints" / "last.ckpt" if path.is_dir() and (path / "checkpoints").is_dir() else path
    try:
        state = read_weights(path, trust)["state_dict"]
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    matrices = {name.removeprefix(PREFIX): each for name, each in state.items() if name.startswith(PREFIX)}
    return {name: each for name, each in matrices.items() if isinstance(each, Tensor) and _is_matrix(each)}


def _is_matrix(value: Tensor) -> bool:
    return value.dim() == 2 and value.is_floating_point() and min(value.shape) > 1


def check_shapes(before: Mapping[str, Tensor], after: Mapping[str, Tensor], places: Sequence[str]) -> None:
    """Refuse checkpoints of different policies."""
    shapes = [{name: tuple(each.shape) for name, each in side.items()} for side in (before, after)]
    if not shapes[0]:
        raise ConfigError(f"{places[0]}: the policy has no weight matrices; give a checkpoint of a run")
    if shapes[0] != shapes[1]:
        keys = [name for name in {**shapes[0], **shapes[1]} if shapes[0].get(name) != shapes[1].get(name)]
        raise ConfigError(
            f"{places[0]} and {places[1]} are of different policies: {keys[0]} has the shapes "
            f"{shapes[0].get(keys[0])} and {shapes[1].get(keys[0])}; compare checkpoints of one policy"
        )


def summarise(changes: Mapping[str, WeightChange]) -> dict[str, dict[str, float]]:
    """Mean of each number over the matrices of a kind, and over `all`; the largest angles are maxima."""
    kinds: dict[str, list[WeightChange]] = {}
    for kind, change in sorted(((_kind(name), each) for name, each in changes.items()), key=lambda pair: pair[0]):
        kinds.setdefault(kind, []).append(change)
    kinds["all"] = list(changes.values())
    return {kind: {"matrices": float(len(each)), **_summary(each)} for kind, each in kinds.items()}


def _summary(changes: Sequence[WeightChange]) -> dict[str, float]:
    rows = {}
    for name in (each.name for each in fields(WeightChange)):
        values = [value for change in changes if math.isfinite(value := getattr(change, name))]
        join = max if name in ("left", "right") else lambda numbers: sum(numbers) / len(numbers)
        rows[name] = join(values) if values else math.nan
    return rows


def _kind(name: str) -> str:
    """The last part of a parameter's name that is no number: q_proj of layers.3.self_attn.q_proj.weight."""
    return [part for part in name.split(".") if not part.isdigit() and part not in ("weight", "default")][-1]


def _jaccard(before: Mapping[str, Tensor], after: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Jaccard index of the entries that two runs from one start changed, over all matrices together."""
    first, second = (
        torch.cat([~unchanged_entries(before[name].double(), side[name].double()).flatten() for name in before])
        for side in (after, other)
    )
    return overlap_of_changes(first, second)


def format_changes(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Format the rows as a table."""
    titles = {"matrices": "matrices", "unchanged": "unchanged", "shift": "spectral shift", "left": "left angle",
              "right": "right angle", "overlap": "principal overlap", "chance": "chance"}  # fmt: skip
    table = [["kind", *titles.values()]]
    table += [[kind, *(f"{row[name]:.4g}" for name in titles)] for kind, row in rows.items()]
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in table)


def _plain(node: Any) -> Any:
    """Replace nan, which JSON has not, by null."""
    if isinstance(node, Mapping):
        return {key: _plain(value) for key, value in node.items()}
    return None if isinstance(node, float) and not math.isfinite(node) else node
