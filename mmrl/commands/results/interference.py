"""Matrix of interference: how training on one task, a group of runs, changed the held-out rate of every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from mmrl.core.errors import ConfigError
from mmrl.evaluation.statistics.intervals import student_interval
from mmrl.evaluation.statistics.seeds import SeedGroup, SeedRun

Change = tuple[float, float, float]
"""Mean over seeds of the last value minus the first, and the ends of its interval; they are the mean for one seed."""


def measure_interference(groups: Sequence[SeedGroup], prefix: str, level: float) -> dict[str, dict[str, Change]]:
    """Measure the change of every task by the runs of every group, by group and task.

    Args:
        groups: of runs.
        prefix: of the columns PREFIX/TASK/mean of metrics.csv.
        level: of Student's t intervals over the seeds.

    Raises:
        ConfigError: a run has no such column, or other tasks than the first one, or one has a single value.
    """
    prefix = prefix.rstrip("/")
    tasks = _list_tasks(groups[0].runs[0], prefix)
    if not tasks:
        raise ConfigError(
            f"tasks={prefix}: {groups[0].runs[0].folder} has no column {prefix}/TASK/mean; measure several tasks, as "
            "with evaluation=suite, or the values of a column with "
            "mmrl.evaluation.metrics.by_info.SuccessRateByInfo"
        )
    for run in (run for group in groups for run in group.runs):
        if _list_tasks(run, prefix) != tasks:
            raise ConfigError(f"tasks={prefix}: {run.folder} has other tasks than {groups[0].runs[0].folder}")
    return {group.name: {task: _change(group, f"{prefix}/{task}/mean", level) for task in tasks} for group in groups}


def _list_tasks(run: SeedRun, prefix: str) -> list[str]:
    start, end = f"{prefix}/", "/mean"
    return sorted(
        n[len(start) : -len(end)] for n in run.names if n.startswith(start) and n.endswith(end) and n != prefix + end
    )


def _change(group: SeedGroup, metric: str, level: float) -> Change:
    changes = []
    for run in group.runs:
        values = list(run.curve(metric).values())
        if len(values) < 2:
            raise ConfigError(f"{run.folder} has {len(values)} values of {metric}; a change needs one before and after")
        changes.append(values[-1] - values[0])
    centre = mean(changes)
    return (centre, *(student_interval(changes, level) if len(changes) > 1 else (centre, centre)))


def format_interference(matrix: Mapping[str, Mapping[str, Change]]) -> str:
    """Format a row for each group and a column for each task."""
    tasks = list(next(iter(matrix.values())))
    table = [["change of", *tasks]]
    for group, row in matrix.items():
        cells = [f"{c:+.4g}" + (f" [{low:.4g}, {high:.4g}]" if low != high else "") for c, low, high in row.values()]
        table.append([group, *cells])
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in table)
