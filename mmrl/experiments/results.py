"""Read and format the stored results of recipes: docs/results/recipes/<room>/<recipe>.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from mmrl.config.option_files import CONF, search_option
from mmrl.experiments.effect import describe_verdict, smallest_shown
from mmrl.experiments.experiment import Experiment

FOLDER = CONF.parent / "docs" / "results"
"""Beside the configuration, in a checkout and in an installed package."""
ABSENT = "not in this installation"
"""Text in place of a result where the folder is missing."""


def result_file(group: str, name: str, folder: Path = FOLDER) -> Path:
    """Where the result of a recipe or a task stands, stored or not: in the room that its file has in conf/."""
    option = search_option(group, name)
    return folder / f"{group}s" / f"{name if option is None else option.name}.json"


def read_result(recipe: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Read the stored result of a recipe; None if there is none."""
    path = result_file("recipe", recipe, folder)
    return json.loads(path.read_text()) if path.exists() else None


def describe_result(recipe: str, folder: Path = FOLDER) -> str:
    """Return the stored result of a recipe as a sentence, or why none is shown."""
    result = read_result(recipe, folder)
    if result is None:
        return "not measured" if folder.is_dir() else ABSENT
    return format_result(result)


def write_json(result: Mapping[str, Any], folder: Path) -> Path:
    """Write a result as JSON, the points of each run on one line."""
    path = result_file("recipe", result["recipe"], folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({key: value for key, value in result.items() if key != "curves"}, indent=2)
    curves = ",\n".join(f'    "{side}": {json.dumps(runs)}' for side, runs in result["curves"].items())
    path.write_text(f'{head[:-2]},\n  "curves": {{\n{curves}\n  }}\n}}\n')
    return path


def with_hashes(result: Mapping[str, Any], hashes: Mapping[str, str]) -> dict[str, Any]:
    """Return the result with the present content hashes; those of its runs are kept under `measured_content`."""
    measured = result.get("measured_content", result["content"])
    names = [name for name in result if name != "measured_content"]
    at = names.index("content") + 1
    entries = {**result, "content": dict(hashes), "measured_content": measured}
    return {name: entries[name] for name in [*names[:at], "measured_content", *names[at:]]}


def result_state(experiment: Experiment, folder: Path = FOLDER) -> str:
    """Return "missing", "stale" or "current": whether the stored result has the content hash, comparison and seeds."""
    result = read_result(experiment.recipe, folder)
    if result is None:
        return "missing"
    enough = {row["seed"] for row in result["seeds"]} >= set(experiment.seed_list)
    compared = result["comparison"] == experiment.comparison
    return "current" if enough and compared and result.get("content") == experiment.hash_sides() else "stale"


def format_result(result: Mapping[str, Any]) -> str:
    """Format verdict, effect with its interval, and what the effect is measured against."""
    verdict, baseline = describe_verdict(result), result["baseline"]
    reference = baseline if isinstance(baseline, str) else baseline["name"]
    if "effect_over_baseline" in result:
        effect, bounds = result["effect_over_baseline"], result["interval_over_baseline"]
    elif "effect" in result:
        effect, bounds = result["effect"], result["interval"]
    else:
        return f"{verdict}: {_format_costs(result)} {result['comparison']}"
    return f"{verdict}: {effect:+.3f} [{bounds[0]:+.3f}, {bounds[1]:+.3f}] over {reference}"


def format_smallest(result: Mapping[str, Any]) -> str:
    """Format the smallest difference that the experiment finds four times in five; empty where there is none."""
    size = smallest_shown(result)
    return "" if size is None else f"{size:.3f}"


def format_table(folder: Path = FOLDER) -> str:
    """Format the results of a folder as rows of a Markdown table."""
    rows = []
    for path in sorted((folder / "recipes").rglob("*.json"), key=lambda path: path.name):
        result = json.loads(path.read_text())
        seeds = result["seeds"]
        minutes = mean(row["seconds"] for row in seeds) / 60
        if "cost" in seeds[0]:
            before, after = result["comparison"], _format_costs(result)
        else:
            before, after = (", ".join(_format_value(row, key) for row in seeds) for key in ("before", "after"))
        rows.append(f"| `{result['recipe']}` | {before} | {after} | {len(seeds)} | {minutes:.1f} |")
    return "\n".join(rows)


def _format_costs(result: Mapping[str, Any]) -> str:
    return ", ".join("never" if row["cost"] is None else f"{row['cost']:,.0f}" for row in result["seeds"])


def _format_value(row: Mapping[str, Any], key: str) -> str:
    return f"{100 * row[key]:.1f} %" if "wilson_after" in row else f"{row[key]:.3g}"
