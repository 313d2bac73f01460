"""Run what a comparison lacks, and store each run when it has ended."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.experiments.comparison import KINDS, Cells, Comparison, choose_value, read_cells, write_cells
from mmrl.experiments.content import hash_content
from mmrl.experiments.effect import measure
from mmrl.experiments.runner import ExperimentRun, RunFailed, describe_machine


@dataclass(frozen=True)
class ComparedRun(ExperimentRun):
    """One `mmrl fit` of a comparison: `side` is the entry of its cell, "seeds" or "tuning".

    `value` is that of the tuned setting, None where nothing is tuned.
    """

    value: float | None = None


def list_missing(comparison: Comparison, cells: Cells, seeds: Sequence[int], runs: Path) -> Iterator[ComparedRun]:
    """Yield the runs that are not stored: all methods and tasks with the first seed, then with the next.

    The searches of the methods that are not yet tuned come first. Their seeds are listed when the searches are stored.
    """
    cell_list = [
        (task, method, cells[task].get(method, {"seeds": []}))
        for task in comparison.tasks
        for method in comparison.methods
    ]
    tuning = comparison.tuning
    for task, method, cell in cell_list if tuning else []:
        tried = {row["value"] for row in cell.get("tuning", [])}
        yield from (
            _build_run(comparison, task, method, tuning.seed, runs, value)
            for value in tuning.values
            if value not in tried
        )
    for seed in seeds:
        for task, method, cell in cell_list:
            value = choose_value(tuning, cell) if tuning else None
            ended = {row["seed"] for kind in KINDS for row in cell.get(kind, [])}
            if seed not in ended and (tuning is None or value is not None):
                yield _build_run(comparison, task, method, seed, runs, value)


def _build_run(
    comparison: Comparison, task: str, method: str, seed: int, runs: Path, value: float | None
) -> ComparedRun:
    words = comparison.words(task, method)
    content, name = hash_content(words), f"{method.replace(' ', '_')}-{seed}"
    if comparison.tuning and value is not None:
        words, name = [*words, f"{comparison.tuning.key}={value:g}"], f"{name}-{value:g}"
    side = "tuning" if comparison.tuning and seed == comparison.tuning.seed else "seeds"
    folder = runs / comparison.name / task / name
    return ComparedRun(f"{task}/{method}", side, seed, tuple(words), content, folder, value)


def run_comparison(
    comparison: Comparison,
    missing: Sequence[ComparedRun],
    workers: int,
    out: Path,
    report: Callable[[ComparedRun, str | None], None],
) -> dict[str, str]:
    """Run what is missing and store each run when it has ended; return errors by task and method.

    A run that `mmrl fit` ended with an error is stored as failed. One that was killed, or found the disk full, stays
    missing. Of a run that is stored the weights are removed: those of a pretrained model fill a disk after some runs.
    """
    cells, errors = read_cells(comparison, out), {}
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(run): run for run in missing}
        for future in as_completed(futures):
            run, failed = futures[future], None
            task, method = run.recipe.split("/", 1)
            metric = comparison.tasks[task].metric
            cell = cells[task].get(method, {"content": run.content, "metric": metric, "seeds": []})
            setting = {} if run.value is None else {"value": run.value}
            try:
                row = measure_run(future.result(), metric, comparison.diagnostics)
                _store(cell, run.side, row | setting)
                _remove_weights(run.folder)
            except (RunFailed, ConfigError) as error:
                errors[run.recipe] = failed = str(error)
                if isinstance(error, RunFailed) and error.reason:
                    kind = "failed" if run.side == "seeds" else run.side
                    _store(cell, kind, {"seed": run.seed, "error": error.reason} | setting)
            if any(cell.get(kind) for kind in ("tuning", *KINDS)):
                cells[task][method] = cell
                write_cells(comparison, cells, describe_machine(workers), out)
            report(run, failed)
    return errors


def _remove_weights(folder: Path) -> None:
    for name in ("checkpoints", "policy"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _store(cell: dict[str, Any], kind: str, row: dict[str, Any]) -> None:
    cell[kind] = sorted([*cell.get(kind, []), row], key=lambda row: (row["seed"], row.get("value", 0)))


def measure_run(run: Mapping[str, Any], metric: str, diagnostics: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return metric before and after, tokens of the episodes, and seconds of the iterations without evaluations.

    Args:
        run: rows of metrics.csv, seed and seconds.
        metric: column of metrics.csv.
        diagnostics: further columns by name, of which the last values come under "diagnostics".

    Raises:
        ConfigError: the run has no value in one of the columns.
    """
    row = measure(run, metric)
    sums = {
        "tokens": sum(_product(each, "rollout/tokens_mean", "rollout/episodes_collected") for each in run["rows"]),
        "seconds": sum(float(each.get("time/iteration") or 0) for each in run["rows"]),
    }
    numbers = {name: row[name] for name in ("seed", "before", "after", "episodes")} | {
        name: round(number, 1) for name, number in sums.items()
    }
    if not diagnostics:
        return numbers
    return numbers | {"diagnostics": {name: _last(run["rows"], column) for name, column in diagnostics.items()}}


def _last(rows: Sequence[Mapping[str, str]], column: str) -> float:
    values = [float(row[column]) for row in rows if row.get(column)]
    if not values:
        raise ConfigError(f"the run has no value in column {column} of metrics.csv")
    return values[-1]


def _product(row: Mapping[str, str], *names: str) -> float:
    return math.prod(float(row.get(name) or 0) for name in names)
