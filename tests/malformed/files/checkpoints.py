"""Checkpoints with right checksums whose plain data is of other types, or of a shape that no reader survives."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Change = Callable[[dict[str, Any]], object]


def deep(levels: int) -> list[Any]:
    node: list[Any] = []
    for _ in range(levels):
        node = [node]
    return node


def cyclic() -> list[Any]:
    node: list[Any] = []
    node.append(node)
    return node


def cyclic_dict() -> dict[str, Any]:
    node: dict[str, Any] = {}
    node["x"] = [node]
    return node


def bomb(levels: int) -> list[Any]:
    node: list[Any] = [1]
    for _ in range(levels):
        node = [node] * 10
    return node


ODD: dict[str, Any] = {
    "null": None, "a number": 3, "a text": "x", "a list": [1], "a nested list": [[{}]], "bytes": b"x",
    "a tensor": torch.ones(2), "true": True, "NaN": float("nan"), "a negative number": -1,
}  # fmt: skip
ENTRIES = (
    "epoch", "global_step", "loops", "callbacks", "optimizer_states", "lr_schedulers", "policy_contract",
    "RolloutData", "pytorch-lightning_version",
)  # fmt: skip
RIGHT = {
    ("epoch", "a number"), ("global_step", "a number"), ("pytorch-lightning_version", "a text"),
    ("policy_contract", "null"), ("lr_schedulers", "null"),
}  # fmt: skip


def entry(name: str, value: Any) -> Change:
    return lambda saved: saved.update({name: value})


def inside(*path: Any, value: Any) -> Change:
    """Replace a value below a path of keys."""

    def change(saved: dict[str, Any]) -> None:
        node: Any = saved
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return change


def without(*path: Any) -> Change:
    def change(saved: dict[str, Any]) -> None:
        node: Any = saved
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return change


TREES: dict[str, Change] = {
    "a list that contains itself": entry("more", cyclic()),
    "a dictionary that contains itself": entry("more", cyclic_dict()),
    "a list 300 deep": entry("more", deep(300)),
    "a list 5000 deep": entry("more", deep(5000)),
    "a bomb of lists": entry("more", bomb(12)),
    "a deep callback": entry("callbacks", {"x": {"y": deep(200)}}),
    "a cyclic loop": inside("loops", "fit_loop", "state_dict", value={"x": cyclic_dict()}),
    "a deep optimiser": lambda saved: saved["optimizer_states"][0]["state"].update(x=deep(400)),
    "a name that is a number": lambda saved: saved.update({3: 4}),
}
TYPES: dict[str, Change] = {
    **{
        f"{name}: {kind}": entry(name, value)
        for name in ENTRIES
        for kind, value in ODD.items()
        if (name, kind) not in RIGHT
    },
    "a loop that is a text": inside("loops", "fit_loop", value="x"),
    "a progress that is a text": inside("loops", "fit_loop", "epoch_progress", value="x"),
    "a count that is a text": inside("loops", "fit_loop", "epoch_progress", "total", "ready", value="x"),
    "a callback that is a list": inside("callbacks", "x", value=[1]),
    "an optimiser that is a text": entry("optimizer_states", ["x"]),
    "an optimiser without groups": entry("optimizer_states", [{"state": {}}]),
    "an optimiser without a state": entry("optimizer_states", [{"param_groups": [{"params": [0]}]}]),
    "an optimiser of empty groups": entry("optimizer_states", [{"state": {}, "param_groups": []}]),
    "groups that are numbers": entry("optimizer_states", [{"state": {}, "param_groups": [1]}]),
    "parameters that are a text": entry("optimizer_states", [{"state": {}, "param_groups": [{"params": "x"}]}]),
    "a schedule that is a text": entry("lr_schedulers", ["x"]),
}
"""Refused by the schema, before anything is built."""
RESTORED: dict[str, Change] = {
    "no optimisers": entry("optimizer_states", []),
    "an optimiser too many": lambda saved: saved["optimizer_states"].append(saved["optimizer_states"][0]),
    "no moments": inside("optimizer_states", 0, "state", value={}),
    "a loop without progress": inside("loops", "fit_loop", value={}),
    "no fit_loop": without("loops", "fit_loop"),
    "a group too many": lambda saved: saved["optimizer_states"][0]["param_groups"].append({"params": [99]}),
    "no curriculum": without("RolloutData", "curriculum"),
    "an order that is a text": inside("RolloutData", "curriculum", "order", value="x"),
    "an iteration that is a text": inside("RolloutData", "iteration", value="x"),
    "an empty count that is a text": inside("RolloutData", "empty", value="x"),
    "a rollout that is a number": inside("RolloutData", "rollout", value=3),
    "schedules that are a text": inside("RolloutData", "schedules", value="x"),
}
"""Found while the run is restored."""


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "x.ckpt")
    return folder / "x.ckpt"


def linked(target: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / "x.ckpt").symlink_to(target)
        return folder / "x.ckpt"

    return build


PLACES: dict[str, Callable[[Path], Path]] = {
    "a pipe": pipe,
    "a device without an end": linked("/dev/zero"),
    "the null device": linked("/dev/null"),
    "a link to nothing": linked("/no/such/file"),
    "a link to itself": linked("x.ckpt"),
    "a folder": linked("/tmp"),
}
