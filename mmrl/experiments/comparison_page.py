"""Write the page and the figure of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrl.evaluation.report.plots import COLOURS
from mmrl.experiments.comparison import Cells, Comparison, Tuning
from mmrl.experiments.effect import student_interval

HEAD = """# {title}

{methods} methods on {tasks} tasks with the same start, problems, completions and optimiser steps, seed by seed.
`python scripts/reproduce.py --table {name}` makes the runs that are missing and writes this page from
`docs/results/comparisons`; a test checks that it is current. The settings stand in `conf/comparison/{name}.yaml`.
{settings}

Start and end are means over the seeds of the held-out number that stands below each task, in hundredths, when actions
are sampled.
Intervals are Student's, 95 %, over seeds; those of the difference to {reference} are paired by seed. They are not
corrected for the number of comparisons: of {pairs} differences without any effect, about {chance} would exclude zero.
Tokens are those of the episodes, without the further completions that a method samples of each state. Seconds are those
of all iterations of the fastest seed, without evaluations: other work of the machine slowed the other seeds. A run that
ended with an error is named below its table; the other columns are of the seeds that finished.
"""
UNTUNED = "All methods have the same learning rate. No setting is tuned for any of them, and the policies are tiny."
TUNED = (
    "Each method has its own {key}: that of {values} which ended highest on seed {seed}, none of those below. Nothing "
    "else is tuned."
)
RANK = "A rank here is one at these settings, and no judgement of a paper."


def format_page(comparison: Comparison, cells: Cells) -> str:
    """Return the page as Markdown."""
    pairs = (len(comparison.methods) - 1) * len(comparison.tasks)
    parts = [
        HEAD.format(
            title=comparison.title,
            name=comparison.name,
            methods=len(comparison.methods),
            tasks=len(comparison.tasks),
            reference=comparison.reference,
            settings=_format_settings(comparison.tuning),
            pairs=pairs,
            chance=max(1, round(0.05 * pairs)),
        )
    ]
    if any(cells.values()):
        parts.append(
            f"![Differences to {comparison.reference}, paired by seed](../results/comparisons/{comparison.name}.png)\n"
        )
        parts += [fill(comparison.explanation, 120) + "\n"] if comparison.explanation else []
    for task, about in comparison.tasks.items():
        parts += [
            f"## {task}\n\n{about.about[:1].upper() + about.about[1:]}.\n",
            _format_table(comparison, cells, task),
            *_format_failures(cells, task),
        ]
    return "\n".join(parts)


def _format_settings(tuning: Tuning | None) -> str:
    if tuning is None:
        return fill(f"{UNTUNED} {RANK}", 120)
    *values, last = (f"{value:g}" for value in tuning.values)
    return fill(
        TUNED.format(key=tuning.key, values=f"{', '.join(values)} and {last}", seed=tuning.seed) + f" {RANK}", 120
    )


def _format_table(comparison: Comparison, cells: Cells, task: str) -> str:
    tuned = [comparison.tuning.key.rpartition(".")[2]] if comparison.tuning else []
    columns = ["seeds", "tokens, thousands", "seconds", *comparison.diagnostics, *tuned]
    lines = [
        " | ".join(["| method", "start", "end", f"difference to {comparison.reference}", *columns]) + " |",
        "|---" + "|---:" * (3 + len(columns)) + "|",
    ]
    reference = cells[task].get(comparison.reference, {"seeds": []})["seeds"]
    for method in comparison.methods:
        cell = cells[task].get(method, {"seeds": []})
        seeds, failed = cell["seeds"], cell.get("failed", [])
        count = f"{len(seeds)}, {len(failed)} failed" if failed else str(len(seeds))
        if not seeds:
            lines.append(f"| {method} | {'' if failed else 'not run'} | | | {count} |" + " |" * (len(columns) - 1))
            continue
        start, end = mean(row["before"] for row in seeds), [row["after"] for row in seeds]
        differences = paired_differences(seeds, reference)
        numbers = (
            f"{100 * start:.0f}",
            _format_interval(end),
            "" if method == comparison.reference else _format_interval(differences, signed=True),
            count,
            f"{mean(row['tokens'] for row in seeds) / 1000:.0f}",
            f"{min(row['seconds'] for row in seeds):.0f}",
            *(f"{mean(row['diagnostics'][name] for row in seeds):.2g}" for name in comparison.diagnostics),
            *(f"{seeds[0]['value']:g}" for _ in tuned),
        )
        lines.append(f"| {method} | " + " | ".join(numbers) + " |")
    return "\n".join(lines) + "\n"


def _format_failures(cells: Cells, task: str) -> list[str]:
    """Return a paragraph for the runs of a task that ended with an error, if there are any."""
    lines = [
        f"- {method}, seed {row['seed']}: {row['error'].split('. ')[0]}."
        for method, cell in cells[task].items()
        for row in cell.get("failed", [])
    ]
    return ["Failed:\n\n" + "\n".join(lines) + "\n"] if lines else []


def paired_differences(seeds: Sequence[dict[str, Any]], reference: Sequence[dict[str, Any]]) -> list[float]:
    """Return the differences of the ends on the seeds that both have."""
    others = {row["seed"]: row["after"] for row in reference}
    return [row["after"] - others[row["seed"]] for row in seeds if row["seed"] in others]


def _format_interval(values: Sequence[float], signed: bool = False) -> str:
    """Format a mean in percent, with its interval from two values on."""
    if not values:
        return ""
    sign = "+" if signed else ""
    middle = f"{100 * mean(values):{sign}.0f}"
    if len(values) < 2:
        return middle
    low, high = student_interval(values)
    return f"{middle} [{100 * low:{sign}.0f}, {100 * high:{sign}.0f}]"


def plot_comparison(comparison: Comparison, cells: Cells, path: Path) -> Path:
    """Draw each method's paired differences to the reference: interval, mean, every seed as a dot.

    There is a panel for each task with runs.
    """
    names = [method for method in comparison.methods if method != comparison.reference]
    tasks = [task for task in comparison.tasks if cells[task]]
    figure = Figure(figsize=(3.2 * len(tasks) + 1.2, 0.3 * len(names) + 1.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for axes, task in zip(panels, tasks):
        reference = cells[task].get(comparison.reference, {"seeds": []})["seeds"]
        axes.axvline(0, color=COLOURS[1], linewidth=1)
        if reference:
            start = mean(row["before"] - row["after"] for row in reference)
            axes.axvline(100 * start, color="#999999", linewidth=1, linestyle=":")
        for y, method in enumerate(names):
            seeds = cells[task].get(method, {"seeds": []})["seeds"]
            points = [100 * difference for difference in paired_differences(seeds, reference)]
            if len(points) > 1:
                axes.plot(student_interval(points), [y, y], color=COLOURS[0], linewidth=2)
            if points:
                axes.plot(points, [y] * len(points), ".", color=COLOURS[0], alpha=0.4, markersize=5)
                axes.plot([mean(points)], [y], "o", color=COLOURS[0], markersize=6)
        axes.set_title(task, loc="left", fontsize=10)
        axes.grid(axis="x", color="#dddddd", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(names)), names, fontsize=9)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(f"points at the end above {comparison.reference} (dotted: its start)", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})  # equal numbers give equal bytes
    return path
