"""What shows that a recipe does what its paper is named for, and the record of the runs in which it was looked for.

A method names numbers of its run in its header, such as `acts: {rollout/guided_groups: "> 0"}`; `python -m tests.acts`
runs recipes at their own defaults and writes the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config.layers.files import RUNS, find_part, read_run
from mmrl.experiments.results import FOLDER

RECORDS = "acts.json"
"""Name of the record in the folder of stored results."""


def read_header(recipe: str, key: str) -> Any:
    """A key in the header of a recipe's method or of its own files; what the method extends is another paper's."""
    layers = read_run({"recipe": recipe})
    method = find_part(layers, "method")
    headed = [layer for layer in layers if layer.group in RUNS or (layer.group == "method" and layer.name == method)]
    values = [value for layer in headed if (value := (layer.keys.get("paper") or {}).get(key))]
    return values[-1] if values else None


def read_conditions(recipe: str) -> dict[str, str]:
    """What has to hold in some iteration of a recipe, such as {"rollout/guided_groups": "> 0"}."""
    return read_header(recipe, "acts") or {}


def read_records(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The record of each recipe that was run, by name; empty where there is none."""
    file = folder / RECORDS
    return json.loads(file.read_text()) if file.exists() else {}


def summarize_acts(record: Mapping[str, Any] | None) -> str:
    """What a run showed first, as a cell of a table."""
    if record is None:
        return "not run"
    if record["problems"]:
        return "stopped early" if record["stopped"] else "no"
    return f"yes: {_format_numbers(record)[0]}"


def describe_acts(recipe: str, record: Mapping[str, Any] | None) -> str:
    """What a run showed, or what one that has not been made would have to show."""
    if record is None:
        asked = ", ".join(f"`{name}` {text}" for name, text in read_conditions(recipe).items())
        return f"not run; to be seen: {asked or TERMS}"
    run = f"in {record['iterations']} iterations at its defaults"
    if record["problems"]:
        return f"{summarize_acts(record)}, {run}: {'; '.join(record['problems'])}"
    return f"yes, {run}: {', '.join(_format_numbers(record))}"


TERMS = "each term has a gradient"


def _format_numbers(record: Mapping[str, Any]) -> list[str]:
    return [f"`{name}` {value:.3g}" for name, (_, value) in record["acts"].items()] or [TERMS]
