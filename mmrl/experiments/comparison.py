"""Compare many recipes on several tasks: conf/comparison/<name>.yaml, and the stored runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.compose import CONF
from mmrl.config.layers.files import RUN_WORDS
from mmrl.core.errors import ConfigError
from mmrl.experiments.content import hash_content
from mmrl.experiments.effect import measure
from mmrl.experiments.results import FOLDER as RESULTS
from mmrl.experiments.runner import ExperimentRun, RunFailed, describe_machine

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
    """

    name: str
    title: str
    reference: str
    seeds: int
    overrides: Sequence[str]
    tasks: Mapping[str, ComparedTask]
    methods: Mapping[str, Sequence[str]]
    explanation: str = ""

    def __post_init__(self) -> None:
        if self.reference not in self.methods:
            raise ConfigError(f"conf/comparison/{self.name}.yaml: reference {self.reference!r} is none of the methods")

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
        return Comparison(name, tasks=tasks, **node)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"conf/comparison/{name}.yaml: {str(error).split('__init__() ')[-1]}") from error


Cells = dict[str, dict[str, dict[str, Any]]]
"""By task and method: `content`, the hash of its runs; `metric`; `seeds`, a row of numbers for each; and, where there
are any, `failed`, seeds and errors of the runs that `mmrl fit` ended with an error."""


def result_path(name: str, folder: Path = RESULTS) -> Path:
    """Return the file of a comparison's stored runs."""
    return folder / "comparisons" / f"{name}.json"


def read_cells(comparison: Comparison, folder: Path = RESULTS) -> Cells:
    """Return the stored runs that still are those of today's configuration and code."""
    path = result_path(comparison.name, folder)
    stored: Cells = json.loads(path.read_text())["cells"] if path.exists() else {}
    return {
        task: {
            method: stored[task][method]
            for method in comparison.methods
            if method in stored.get(task, {})
            and stored[task][method]["content"] == hash_content(comparison.words(task, method))
            and stored[task][method]["metric"] == about.metric
        }
        for task, about in comparison.tasks.items()
    }


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


def list_missing(comparison: Comparison, cells: Cells, seeds: Sequence[int], runs: Path) -> Iterator[ExperimentRun]:
    """Yield the runs that are not stored: all methods and tasks with the first seed, then with the next."""
    for seed in seeds:
        for task in comparison.tasks:
            for method in comparison.methods:
                words = comparison.words(task, method)
                cell = cells[task].get(method, {"seeds": []})
                if seed not in {row["seed"] for row in [*cell["seeds"], *cell.get("failed", [])]}:
                    folder = runs / comparison.name / task / f"{method.replace(' ', '_')}-{seed}"
                    yield ExperimentRun(f"{task}/{method}", "method", seed, tuple(words), hash_content(words), folder)


def run_comparison(
    comparison: Comparison,
    missing: Sequence[ExperimentRun],
    workers: int,
    out: Path,
    report: Callable[[ExperimentRun, str | None], None],
) -> dict[str, str]:
    """Run what is missing and store each run when it has ended; return errors by task and method.

    A run that `mmrl fit` ended with an error is stored as failed. One that was killed stays missing.
    """
    cells, errors = read_cells(comparison, out), {}
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(run): run for run in missing}
        for future in as_completed(futures):
            run, failed = futures[future], None
            task, method = run.recipe.split("/", 1)
            new = {"content": run.content, "metric": comparison.tasks[task].metric, "seeds": []}
            cell = cells[task].get(method, new)
            try:
                _store(cell, "seeds", measure_run(future.result(), comparison.tasks[task].metric))
            except (RunFailed, ConfigError) as error:
                errors[run.recipe] = failed = str(error)
                if isinstance(error, RunFailed) and error.reason:
                    _store(cell, "failed", {"seed": run.seed, "error": error.reason})
            if cell["seeds"] or cell.get("failed"):
                cells[task][method] = cell
                write_cells(comparison, cells, describe_machine(workers), out)
            report(run, failed)
    return errors


def _store(cell: dict[str, Any], kind: str, row: dict[str, Any]) -> None:
    cell[kind] = sorted([*cell.get(kind, []), row], key=lambda row: row["seed"])


def measure_run(run: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return metric before and after, tokens of the episodes, and seconds of the iterations without evaluations."""
    row = measure(run, metric)
    sums = {
        "tokens": sum(_product(each, "rollout/tokens_mean", "rollout/episodes_collected") for each in run["rows"]),
        "seconds": sum(float(each.get("time/iteration") or 0) for each in run["rows"]),
    }
    return {name: row[name] for name in ("seed", "before", "after", "episodes")} | {
        name: round(number, 1) for name, number in sums.items()
    }


def _product(row: Mapping[str, str], *names: str) -> float:
    return math.prod(float(row.get(name) or 0) for name in names)
