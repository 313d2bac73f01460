"""`mmrl compare`: the mean of a held-out number over seeds with its interval, group against group, and one plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from mmrl.commands.results.interference import format_interference, measure_interference
from mmrl.core.errors import ConfigError
from mmrl.evaluation.report.seed_curves import plot_groups
from mmrl.evaluation.statistics.headline import check_metric, find_headline
from mmrl.evaluation.statistics.intervals import student_interval
from mmrl.evaluation.statistics.seeds import MEASURED, SeedGroup, find_differences, read_group
from mmrl.runs.writable import writable

OPTIONS = ("metric", "out", "level", "tasks")


def compare(arguments: Sequence[str]) -> Path:
    """Print a table of groups of runs and draw their curves; returns the path of the plot.

    Args:
        arguments: of the command line: groups, and metric=NAME, out=FILE.png, level=0.95, tasks=PREFIX.

    Raises:
        ConfigError: a group has no runs, or a run lacks the metric.
    """
    places = [word for word in arguments if word.partition("=")[0] not in OPTIONS]
    options = dict(word.split("=", 1) for word in arguments if word not in places and "=" in word)
    if not places or len(places) + len(options) != len(arguments):
        raise ConfigError(
            f"give groups of runs, as in mmrl compare runs/a runs/b, got {list(arguments)}; options are metric=NAME, "
            "out=FILE.png, level=0.95 and tasks=PREFIX"
        )
    level, out = _read_level(options.get("level", "0.95")), Path(options.get("out", "compare.png"))
    if out.suffix.lower() != ".png":
        raise ConfigError(f"out={out}: the plot is a PNG; name a file that ends with .png")
    groups = [read_group(place) for place in places]
    metric = _choose_metric(groups, options.get("metric"))
    matrix = measure_interference(groups, options["tasks"], level) if "tasks" in options else None
    print(format_groups(groups, metric, level))
    if matrix is not None:
        print(format_interference(matrix))
    with writable(out, "out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        plot_groups(groups, metric, out, level)
    print(f"plot: {out}")
    return out


def _read_level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0 < level < 1:
        raise ConfigError(f"level={text}: the level of the intervals is a number between 0 and 1, such as 0.95")
    return level


def _choose_metric(groups: Sequence[SeedGroup], name: str | None) -> str:
    """Return the metric that is compared, which all runs have at a common iteration."""
    first = groups[0].runs[0]
    metric = find_headline(first.config, first.names) if name is None else check_metric(name, first.names, first.folder)
    if metric is None:
        raise ConfigError(f"{first.folder} has measured nothing on held-out problems; name a metric with metric=NAME")
    for group in groups:
        for run in group.runs:
            check_metric(metric, {each for each in run.names if run.curve(each)}, run.folder)
        if not group.mean_curve(metric):
            raise ConfigError(f"{group.name}: no iteration at which all seeds have {metric}")
    return metric


def format_groups(groups: Sequence[SeedGroup], metric: str, level: float = 0.95) -> str:
    """Format a row for each group: seeds, iterations, mean of the last values, its interval, and the difference.

    The interval is Student's t over seeds; of a single run, that of its evaluator over held-out problems. The
    difference is to the first group; where both have the same seeds it is paired.
    """
    head = ["group", "seeds", "iterations", metric, f"{100 * level:g} % interval", "difference to the first"]
    rows, notes = [head], []
    for group in groups:
        values = group.last(metric)
        ends = sorted({next(reversed(run.curve(metric))) for run in group.runs})
        seeds = ",".join(str(run.seed) for run in group.runs)
        bounds, note = _interval(group, metric, level)
        difference = "" if group is groups[0] else _format_difference(groups[0], group, metric, level)
        iterations = f"{ends[0]:g}" if len(ends) == 1 else f"{ends[0]:g} to {ends[-1]:g}"
        rows.append([group.name, seeds, iterations, f"{mean(values):.4g}", bounds, difference])
        notes += [note] if note else []
        if len(ends) > 1:
            notes.append(f"{group.name}: its seeds have ended at different iterations; the plot shows common ones")
        if group is not groups[0] and (keys := _measured_otherwise(groups[0], group)):
            notes.append(f"{group.name} is measured otherwise than {groups[0].name}: {', '.join(keys[:3])}")
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *(f"note: {note}" for note in dict.fromkeys(notes))])


def _interval(group: SeedGroup, metric: str, level: float) -> tuple[str, str]:
    """Return the interval of a group's mean, and what it is of where it is none over seeds."""
    if len(group.runs) > 1:
        return _format_bounds(student_interval(group.last(metric), level)), ""
    bounds = group.runs[0].interval(metric)
    if bounds is None:
        return "", f"{group.name}: one seed has no interval"
    return _format_bounds(bounds), f"{group.name}: one seed; the interval is the evaluator's, over held-out problems"


def _format_difference(first: SeedGroup, other: SeedGroup, metric: str, level: float) -> str:
    """Return the difference of the means; its interval where both groups have the same seeds, paired by seed."""
    before, after = first.last(metric), other.last(metric)
    text = f"{mean(after) - mean(before):+.4g}"
    same = [run.seed for run in first.runs] == [run.seed for run in other.runs]
    if not same or len(before) < 2:
        return text
    return f"{text} {_format_bounds(student_interval([b - a for a, b in zip(before, after)], level))}"


def _format_bounds(bounds: tuple[float, float]) -> str:
    return f"[{bounds[0]:.4g}, {bounds[1]:.4g}]"


def _measured_otherwise(first: SeedGroup, other: SeedGroup) -> list[str]:
    return find_differences(first.runs[0].config, other.runs[0].config, MEASURED)
