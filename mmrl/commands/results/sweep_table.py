"""Results of a sweep: the objective of each run, and one table of all runs."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mmrl.evaluation.statistics.headline import check_metric, find_headline, interval_of
from mmrl.files.atomic import write_file
from mmrl.runs.metrics_csv import NAME, read_rows

FILE = "sweep.json"
"""In the folder of a run of a sweep: its arguments and its result."""
TABLE = "results.csv"
"""In the folder of a sweep."""


@dataclass(frozen=True)
class JobResult:
    """One run of a sweep.

    Args:
        number: of the run, which is the name of its folder.
        arguments: of `mmrl fit`.
        metric: that is compared; empty where the run measures nothing on held-out problems.
        value: its last value.
        interval: over held-out problems, if the evaluator measures one.
    """

    number: int
    arguments: Sequence[str]
    metric: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    options: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        pairs = (re.sub(r"\\(.)", r"\1", argument).split("=", 1) for argument in self.arguments)  # without escapes
        object.__setattr__(self, "options", dict(pairs))


def measure_job(
    number: int, arguments: Sequence[str], folder: Path, current: Mapping[str, Any], metric: str | None
) -> JobResult:
    """Read the objective of a run that has ended.

    Args:
        number: of the run.
        arguments: of the run.
        folder: of the run, with config.yaml.
        current: the newest value of every metric, where this process trained the run; else they are in metrics.csv.
        metric: name of the objective; None for the run's headline, the held-out mean of its first evaluator.

    Raises:
        ConfigError: the run has no metric of that name. ValueError: the objective is not finite.
    """
    newest = current or {name: value for row in read_rows(folder / NAME) for name, value in row.items()}
    metrics = {name: float(value) for name, value in newest.items()}
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    name = find_headline(config, metrics) if metric is None else check_metric(metric, metrics, f"run {number}")
    if name is None:
        return JobResult(number, list(arguments))
    value = metrics[name]
    if not math.isfinite(value):
        raise ValueError(f"run {number}: the objective {name} is {value}; name another one with metric=NAME")
    return JobResult(number, list(arguments), name, value, interval_of(name, metrics))


def write_job(result: JobResult, folder: Path) -> None:
    """Write the result of a run into its folder."""
    plain = {name: value for name, value in asdict(result).items() if name != "options"}
    write_file(folder / FILE, json.dumps(plain, indent=2) + "\n")


def stamp_jobs(sweep: Path) -> dict[Path, tuple[int, int]]:
    """Results of runs that are in the folder of a sweep, by file: a stamp that changes when the file is written again.

    A time would not do: the clock may be set back while the sweep runs.
    """
    stats = [(file, file.stat()) for file in sweep.glob(f"*/{FILE}")]
    return {file: (stat.st_ino, stat.st_mtime_ns) for file, stat in stats}


def read_jobs(sweep: Path, earlier: Mapping[Path, tuple[int, int]]) -> list[JobResult]:
    """Read the results of the runs of a sweep that have ended, by number.

    Args:
        sweep: folder of the sweep.
        earlier: `stamp_jobs` of the folder before the sweep; results that are still those are left out.
    """
    files = [file for file, stamp in stamp_jobs(sweep).items() if earlier.get(file) != stamp]
    results = [JobResult(**json.loads(file.read_text())) for file in files]
    return sorted(results, key=lambda result: result.number)


def write_table(results: Sequence[JobResult], sweep: Path) -> Path:
    """Write the table of a sweep: a row for each run, with the arguments that differ between runs and the result."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(_rows(results))
    return write_file(sweep / TABLE, text.getvalue())


def format_table(results: Sequence[JobResult]) -> str:
    """Format the table of a sweep in columns of equal width."""
    rows = [[_shorten(cell) for cell in row] for row in _rows(results)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def _rows(results: Sequence[JobResult]) -> list[list[Any]]:
    """Head and rows; runs that measure different metrics have a column with its name."""
    names = list(dict.fromkeys(name for result in results for name in result.options))
    differing = [name for name in names if len({result.options.get(name) for result in results}) > 1]
    metrics = {result.metric for result in results}
    (value,) = metrics if len(metrics) == 1 else ("value",)
    head = ["run", *differing, *(["metric"] if len(metrics) > 1 else []), value or "held-out", "lower", "upper"]
    rows: list[list[Any]] = [head]
    for result in results:
        cells = [result.number, *(result.options.get(name, "") for name in differing)]
        cells += [result.metric] if len(metrics) > 1 else []
        rows.append([*cells, *("" if x is None else x for x in (result.value, *(result.interval or (None, None))))])
    return rows


def _shorten(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
