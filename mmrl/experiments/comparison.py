"""Compare many recipes on several tasks: conf/comparison/<name>.yaml, and the stored runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.compose import CONF
from mmrl.config.layers.files import RUN_WORDS
from mmrl.core.errors import ConfigError
from mmrl.experiments.content import hash_content
from mmrl.experiments.results import FOLDER as RESULTS

FOLDER = CONF / "comparison"


@dataclass(frozen=True)
class ComparedTask:
    """A task of a comparison.

    Args:
        about: problems and metric, in words.
        metric: column of metrics.csv, on held-out problems.
        overrides: of its runs.
    """

    about: str
    metric: str
    overrides: Sequence[str]


@dataclass(frozen=True)
class Tuning:
    """A search that gives each method its own value of one setting on each task: the one that ends highest.

    Args:
        key: of the setting, as on the command line.
        values: that are tried.
        seed: of the search, which is none of the reported ones.
    """

    key: str
    values: Sequence[float]
    seed: int


@dataclass(frozen=True)
class Comparison:
    """Methods and tasks, each method on each task with the same seeds.

    Args:
        name: of its file.
        title: of its page.
        reference: method that the others are compared with, seed by seed.
        seeds: number of seeds, counted from 0.
        overrides: of all runs.
        tasks: by name.
        methods: overrides by the method's name, which follow those of the task.
        explanation: of the differences, for the page.
        tuning: of one setting for each method; none gives all of them the same value.
        diagnostics: further columns of metrics.csv by their names on the page; a run has the last value of each.
    """

    name: str
    title: str
    reference: str
    seeds: int
    overrides: Sequence[str]
    tasks: Mapping[str, ComparedTask]
    methods: Mapping[str, Sequence[str]]
    explanation: str = ""
    tuning: Tuning | None = None
    diagnostics: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = f"conf/comparison/{self.name}.yaml"
        if self.reference not in self.methods:
            raise ConfigError(f"{place}: reference {self.reference!r} is none of the methods")
        if self.tuning and not (self.tuning.values and all(isinstance(value, float) for value in self.tuning.values)):
            raise ConfigError(f"{place}: tuning.values must be numbers such as 2.0e-4, got {list(self.tuning.values)}")
        if self.tuning and self.tuning.seed in range(self.seeds):
            raise ConfigError(f"{place}: tuning.seed {self.tuning.seed} is one of the {self.seeds} that are reported")

    def words(self, task: str, method: str) -> list[str]:
        """Return the overrides of the runs of a method on a task, without the seed."""
        method_words = list(self.methods[method])
        recipe = [word for word in method_words if word.startswith(RUN_WORDS)]
        return [
            *recipe,
            *self.overrides,
            *self.tasks[task].overrides,
            *(word for word in method_words if word not in recipe),
        ]


def read_comparison(name: str, folder: Path = FOLDER) -> Comparison:
    """Read a comparison; raises ConfigError with the names that there are, or with what is wrong in the file."""
    path = folder / f"{name}.yaml"
    if not path.exists():
        raise ConfigError(f"no comparison {name!r}; there are {sorted(file.stem for file in folder.glob('*.yaml'))}")
    node: dict[str, Any] = yaml.safe_load(path.read_text())
    try:
        tasks = {task: ComparedTask(**about) for task, about in node.pop("tasks").items()}
        tuning = Tuning(**node.pop("tuning")) if "tuning" in node else None
        return Comparison(name, tasks=tasks, tuning=tuning, **node)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"conf/comparison/{name}.yaml: {str(error).split('__init__() ')[-1]}") from error


Cells = dict[str, dict[str, dict[str, Any]]]
"""By task and method: `content`, the hash of its runs; `metric`; `seeds`, a row of numbers for each; where there are
any, `failed`, seeds and errors of the runs that `mmrl fit` ended with an error; and where a setting is tuned, `tuning`,
a row for each value that was tried. Rows of tuned runs have their `value`."""


KINDS = ("seeds", "failed")
"""Entries of a cell with a row for each reported seed."""


def result_path(name: str, folder: Path = RESULTS) -> Path:
    """Return the file of a comparison's stored runs."""
    return folder / "comparisons" / f"{name}.json"


def read_cells(comparison: Comparison, folder: Path = RESULTS) -> Cells:
    """Return the stored runs that still are those of today's configuration and code."""
    path = result_path(comparison.name, folder)
    stored: Cells = json.loads(path.read_text())["cells"] if path.exists() else {}
    return {
        task: {
            method: keep_tuned(comparison.tuning, stored[task][method])
            for method in comparison.methods
            if method in stored.get(task, {})
            and stored[task][method]["content"] == hash_content(comparison.words(task, method))
            and stored[task][method]["metric"] == about.metric
        }
        for task, about in comparison.tasks.items()
    }


def choose_value(tuning: Tuning, cell: Mapping[str, Any]) -> float | None:
    """Return the value with the highest end, the first of equal ones; None until each has been tried."""
    tried = {row["value"]: row.get("after", -math.inf) for row in cell.get("tuning", [])}
    return max(tuning.values, key=tried.__getitem__) if set(tuning.values) <= set(tried) else None


def keep_tuned(tuning: Tuning | None, cell: dict[str, Any]) -> dict[str, Any]:
    """Leave out the searches of another seed, and the runs with a value that the search does not choose."""
    if tuning is None:
        return cell
    cell = cell | {"tuning": [row for row in cell.get("tuning", []) if row["seed"] == tuning.seed]}
    value = choose_value(tuning, cell)
    return cell | {kind: [row for row in cell[kind] if row["value"] == value] for kind in KINDS if kind in cell}


def check_starts(comparison: Comparison, cells: Cells) -> None:
    """Refuse runs of one seed that begin at different values: they are from different machines, and make no pairs."""
    for task, row in cells.items():
        starts: dict[int, tuple[str, float]] = {}
        for method, cell in row.items():
            for run in cell["seeds"]:
                first, before = starts.setdefault(run["seed"], (method, run["before"]))
                if run["before"] != before:
                    raise ConfigError(
                        f"comparison {comparison.name}, task {task}, seed {run['seed']}: {first} starts at {before:g} "
                        f"and {method} at {run['before']:g}, from another machine or version of torch; delete one of "
                        f"them from {result_path(comparison.name).name} and measure it again here"
                    )


def write_cells(comparison: Comparison, cells: Cells, machine: str, folder: Path = RESULTS) -> Path:
    """Write the runs as JSON, those of a cell on a line."""
    path = result_path(comparison.name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    tasks = (
        f"    {json.dumps(task)}: {{\n"
        + ",\n".join(f"      {json.dumps(method)}: {json.dumps(cell)}" for method, cell in row.items())
        + "\n    }"
        for task, row in cells.items()
    )
    head = json.dumps({"comparison": comparison.name, "machine": machine}, indent=2)[:-2]
    path.write_text(f'{head},\n  "cells": {{\n' + ",\n".join(tasks) + "\n  }\n}\n")
    return path
