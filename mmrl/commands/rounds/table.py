"""The table and the plot of a rounds folder: one row for each step, and the held-out score with its interval."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from mmrl.commands.rounds.receipts import Receipt
from mmrl.commands.rounds.schedule import StageRun
from mmrl.files.atomic import replace_path, write_file

COLUMNS = (
    *("round", "stage", "kind", "weights", "rows", "problems", "reward", "metric", "mean", "lower", "upper", "n"),
    "note",
)
Ended = Sequence[tuple[StageRun, Receipt]]
"""Steps that have ended, in order, with their receipts."""


def build_records(ended: Ended) -> list[dict[str, str]]:
    """Build a row of the table for each step; numbers with all their digits."""
    records = []
    for step, receipt in ended:
        numbers = {key: value for key, value in receipt.result.items() if key in COLUMNS}
        acts = step.kind not in ("filter", "score", "write") and not getattr(step.stage, "expert", False)
        weights = (step.weights or "base") if acts else ""
        fields = {"round": step.round, "stage": step.name.partition("/")[2], "kind": step.kind, "weights": weights}
        record = {**fields, **numbers, "note": receipt.note}
        records.append({column: str(record.get(column, "")) for column in COLUMNS})
    return records


def write_table(folder: Path, ended: Ended) -> Path:
    """Write table.csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(build_records(ended))
    return write_file(folder / "table.csv", text.getvalue())


def format_table(ended: Ended, title: str) -> Table:
    """Format the table for the terminal, with four digits and without empty columns."""
    records = build_records(ended)
    columns = [column for column in COLUMNS if any(record[column] for record in records)]
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column in COLUMNS[1:4] else "right")
    for record in records:
        table.add_row(*(_shorten(record[column]) for column in columns))
    return table


def _shorten(text: str) -> str:
    if "." not in text:
        return text
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def plot_scores(folder: Path, ended: Ended, title: str) -> Path | None:
    """Draw the held-out score of every evaluation with its interval, in order; None where there is none."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from mmrl.evaluation.report.plots import COLOURS

    measured = [(step, receipt.result) for step, receipt in ended if "mean" in receipt.result]
    if not measured:
        return None
    figure = Figure(figsize=(max(6.0, 0.55 * len(measured) + 2), 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    means = [result["mean"] for _, result in measured]
    bounds = [(result.get("lower", result["mean"]), result.get("upper", result["mean"])) for _, result in measured]
    errors = [[m - b[0] for m, b in zip(means, bounds)], [b[1] - m for m, b in zip(means, bounds)]]
    axes.errorbar(range(len(means)), means, yerr=errors, color=COLOURS[0], marker="o", capsize=3, linewidth=1.4)
    for number, (one, other) in enumerate(pairwise(measured)):
        if one[0].round != other[0].round:
            axes.axvline(number + 0.5, color="#bbbbbb", linewidth=0.8, linestyle=":")
    names = [step.name for step, _ in measured]
    axes.set_xticks(range(len(means)), names, rotation=45, ha="right", fontsize=8)
    axes.set_xlabel("round/stage")
    axes.set_ylabel(measured[0][1]["metric"])
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    with replace_path(folder / "scores.png") as path:
        figure.savefig(path, metadata={"Software": None})  # equal numbers give equal bytes
    return folder / "scores.png"
