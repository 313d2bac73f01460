"""Run experiments: one process for each side and seed; write a recipe's result after its last run."""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.config.compose import CONF
from mmrl.core.errors import ConfigError
from mmrl.experiments.effect import cost_to_threshold, mean_usage, measure, read_usage, summarise
from mmrl.experiments.experiment import Experiment
from mmrl.experiments.figure import plot_curves, read_curve
from mmrl.experiments.results import format_result, read_result, write_json
from mmrl.files.atomic import FULL


class RunFailed(Exception):
    """A fit ended with an error; the message names its log.

    Args:
        message: names the log.
        reason: what `mmrl fit` said; empty where it was killed, or found the disk full.
    """

    def __init__(self, message: str, reason: str = ""):
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class ExperimentRun:
    """One `mmrl fit`: a side of an experiment with one seed."""

    recipe: str
    side: str
    seed: int
    overrides: tuple[str, ...]
    content: str
    folder: Path

    def __call__(self) -> dict[str, Any]:
        """Run the fit in a process unless it has finished before; return rows of metrics.csv and seconds."""
        command = ["-m", "mmrl", "fit", *self.overrides, f"seed={self.seed}", f"run_dir={self.folder}"]
        receipt = self.folder / "receipt.json"  # written after a finished run; an equal request is not run again
        request = {"command": command, "content": self.content}
        record = json.loads(receipt.read_text()) if receipt.exists() else {}
        if {key: record.get(key) for key in request} != request:
            record = request | {"seconds": self._fit(command)}
            receipt.write_text(json.dumps(record) + "\n")
        with (self.folder / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        return {"rows": rows, "seconds": record["seconds"], "seed": self.seed}

    def _fit(self, command: Sequence[str]) -> float:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        started = time.perf_counter()
        with (self.folder.parent / f"{self.folder.name}.log").open("w") as log:
            process = subprocess.run(
                [sys.executable, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=CONF.parent,
                env={**threads, **os.environ, "MMRL_STARTS": str(self.folder.parent.parent / "starts")},
            )
        if process.returncode:
            message = f"mmrl fit {' '.join(command[3:])} failed; see {log.name}"
            raise RunFailed(message, read_reason(Path(log.name)))
        return round(time.perf_counter() - started, 1)


def read_reason(log: Path) -> str:
    """Return the error with which `mmrl fit` ended, from the end of its log; empty for a signal or a full disk."""
    last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
    prefix, _, reason = last.partition("mmrl fit: ")
    is_full = any(os.strerror(number) in reason for number in FULL)
    return "" if prefix or reason.startswith("stopped by") or is_full else reason


def describe_machine(workers: int) -> str:
    """Describe the machine of a stored result, and how many runs it had at a time."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {workers} runs at a time"


def list_runs(
    experiment: Experiment, contents: Mapping[str, str], seeds: Sequence[int], folder: Path
) -> list[ExperimentRun]:
    """List all runs of an experiment; `contents` has the hashes of its sides."""
    sides = experiment.sides(with_baseline="baseline" in contents)
    name = experiment.recipe
    return [
        ExperimentRun(name, side, seed, tuple(words), contents[side], folder / name / f"{side}-{seed}")
        for seed in seeds
        for side, words in sides.items()
    ]


@dataclass(frozen=True)
class MeasuredRun:
    """What a result keeps of one run.

    Args:
        row: seed, metric before and after or cost, and seconds.
        curve: (iteration, value) of the metric.
        usage: iterations, episodes and seconds.
    """

    row: Mapping[str, Any]
    curve: Sequence[Sequence[float]]
    usage: Mapping[str, float]


def measure_seed(experiment: Experiment, run: Mapping[str, Any]) -> MeasuredRun:
    """Measure the run of a seed that has ended, given rows of metrics.csv, seed and seconds."""
    if experiment.threshold is not None and experiment.cost is not None:
        row = cost_to_threshold(run, experiment.metric, experiment.threshold, experiment.cost)
    else:
        row = measure(run, experiment.metric, experiment.per_task)
    return MeasuredRun(row, read_curve(run["rows"], experiment.metric), read_usage(run))


def read_measured_runs(
    experiment: Experiment, contents: Mapping[str, str], folder: Path
) -> dict[tuple[str, int], MeasuredRun]:
    """Read the runs of the stored result, by side and seed; none if configuration, code or metric have changed.

    The usage of a stored run is the stored mean of its side.
    """
    stored = read_result(experiment.recipe, folder)
    if stored is None or stored["content"] != contents or stored["comparison"] != experiment.comparison:
        return {}
    if any(("per_task" in row) != bool(experiment.per_task) for row in stored["seeds"]):
        return {}
    rows = {"method": stored["seeds"]}
    if "baseline" in contents:
        rows["baseline"] = stored["baseline"]["seeds"]
    return {
        (side, row["seed"]): MeasuredRun(row, curve, stored["usage"][side])
        for side in contents
        for row, curve in zip(rows[side], stored["curves"][side], strict=True)
    }


def build_result(
    experiment: Experiment,
    contents: Mapping[str, str],
    runs: Mapping[tuple[str, int], MeasuredRun],
    machine: str,
) -> dict[str, Any]:
    """Build the result of an experiment from its runs by side and seed."""
    by_side = {side: [run for (run_side, _), run in runs.items() if run_side == side] for side in contents}
    seeds = {side: [run.row for run in by_side[side]] for side in contents}
    baseline = seeds.get("baseline")
    return {
        "recipe": experiment.recipe,
        "budget": experiment.budget,
        "comparison": experiment.comparison,
        "target": dict(experiment.target),
        **summarise(experiment, seeds["method"], baseline),
        "seeds": seeds["method"],
        "baseline": {"name": experiment.baseline.name, "seeds": baseline}
        if experiment.baseline and baseline
        else "the start",
        "usage": {side: mean_usage([run.usage for run in by_side[side]]) for side in contents},
        "content": dict(contents),
        "machine": machine,
        "metric": experiment.metric,
        "curves": {side: [run.curve for run in by_side[side]] for side in contents},
    }


def write_result(result: Mapping[str, Any], folder: Path) -> Path:
    """Write a result as JSON and its figure beside it."""
    path = write_json(result, folder)
    plot_curves(result, f"{result['recipe']}: {format_result(result)}", path.with_suffix(".png"))
    return path


def run_experiments(
    experiments: Sequence[Experiment],
    seeds: Sequence[int] | None,
    workers: int,
    runs: Path,
    out: Path,
    with_baseline: bool = True,
    keep_stored: bool = False,
    report: Callable[[ExperimentRun, str | None], None] = lambda run, error: None,
) -> dict[str, str]:
    """Run all experiments and write each result after its last run; return errors by recipe.

    Args:
        seeds: seeds of all experiments; None takes each experiment's own.
        workers: runs at a time.
        runs: folder of the runs; finished runs are not repeated.
        out: folder of the results.
        with_baseline: whether the baselines are run too.
        keep_stored: take seeds from the stored result where configuration and code are unchanged, and run the others.
        report: called after each run with its error, if there is one.
    """
    for experiment in experiments:
        experiment.check_evaluation_interval(with_baseline)
    machine = describe_machine(workers)
    errors: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        finished: dict[str, dict[tuple[str, int], MeasuredRun | None]] = {}
        futures: dict[Future, tuple[Experiment, ExperimentRun]] = {}
        contents = {experiment.recipe: experiment.hash_sides(with_baseline) for experiment in experiments}
        for experiment in experiments:
            name = experiment.recipe
            listed = list_runs(experiment, contents[name], seeds or experiment.seed_list, runs)
            stored = read_measured_runs(experiment, contents[name], out) if keep_stored else {}
            finished[name] = {(run.side, run.seed): stored.get((run.side, run.seed)) for run in listed}
            missing = [run for run in listed if finished[name][run.side, run.seed] is None]
            futures |= {pool.submit(run): (experiment, run) for run in missing}
        for future in as_completed(futures):
            experiment, run = futures[future]
            name, failed = experiment.recipe, None
            try:
                finished[name][run.side, run.seed] = measure_seed(experiment, future.result())
                if None not in finished[name].values():
                    write_result(build_result(experiment, contents[name], finished[name], machine), out)  # type: ignore[arg-type]
            except (RunFailed, ConfigError) as error:
                errors[name] = failed = str(error)
            report(run, failed)
    return errors
