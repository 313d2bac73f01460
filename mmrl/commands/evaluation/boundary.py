"""The comparison of `mmrl evaluate` with several samples of each problem: tables, figures and perplexities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mmrl.commands.cli import CLI
from mmrl.commands.evaluation.arguments import EvaluationRequest
from mmrl.data.answer_logprobs import AnswerLogprobs
from mmrl.evaluation.boundary.comparison import BoundaryComparison
from mmrl.evaluation.boundary.figure import save_boundary
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.statistics.intervals import wilson

Boundaries = Mapping[str, Sequence[BoundaryComparison]]
"""By the name of a success rate: one comparison for each decode, and for each task where there are several."""


def add_logprobs(cli: CLI, request: EvaluationRequest, held_out: HeldOut) -> None:
    """Record log-probabilities of answers where two checkpoints are compared and the run has a reference.

    The reference is a copy of the weights that are loaded first, which are those to compare with.
    """
    if request.compare is not None and held_out.num_samples > 1 and getattr(cli.model, "reference", False):
        held_out.transforms = {**held_out.transforms, "answer_logprobs": AnswerLogprobs()}


def print_boundaries(title: str, boundaries: Boundaries) -> None:
    """Print pass@k of both checkpoints, and where they meet."""
    console = Console(width=None if Console().is_terminal else 140, markup=False, emoji=False)
    for name, parts in boundaries.items():
        for part in parts:
            console.print(format_boundary(part, f"{title}: {name}, {part.label}"))
            for line in describe_boundary(part):
                console.print(line, highlight=False)


def format_boundary(boundary: BoundaryComparison, title: str) -> Table:
    """Format pass@k of both checkpoints with Wilson intervals, one row for each k."""
    problems = len(boundary.differences)
    caption = f"{problems} problems; [Wilson {100 * boundary.level:g} % interval over problems]"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for header in ("k", "before", "after", "after - before"):
        table.add_column(header, justify="right", no_wrap=True)
    for k in boundary.ks:
        values = [curve[k - 1] for curve in (boundary.before, boundary.after)]
        cells = [_format_rate(value, problems, boundary.level) for value in values]
        table.add_row(str(k), *cells, f"{100 * (values[1] - values[0]):+.1f}")
    return table


def describe_boundary(boundary: BoundaryComparison) -> list[str]:
    """Describe where the curves meet, the sampling-efficiency gap, who solves what, and perplexities."""
    k, crossing = boundary.largest, boundary.crossing
    if isnan(crossing):
        meets = f"higher than before up to k = {k}"
    else:
        meets = "nowhere higher than before" if crossing == 1 else f"met by that before at k = {crossing:.0f}"
    difference, lower, upper = (100 * each for each in boundary.difference)
    solved = ", ".join(f"{name} {count}" for name, count in boundary.solved.items())
    lines = [
        f"pass@k after is {meets}; at k = {k} it is {difference:+.1f} points [{lower:+.1f}, {upper:+.1f}] (paired)",
        f"sampling-efficiency gap, pass@{k} before - pass@1 after: {100 * boundary.efficiency_gap:.1f} points",
        f"problems solved in {k} samples: {solved}",
    ]
    if boundary.perplexity:
        values = ", ".join(f"{name} {value:.3g}" for name, value in boundary.perplexity.items())
        lines.append(f"median of right answers: {values}")
    if boundary.left_out:
        lines.append(f"{boundary.left_out} problems have fewer than {k} finished samples and are left out")
    return lines


def write_figures(folder: Path, boundaries: Boundaries) -> list[Path]:
    """Write plots/<decode>-<rate>-boundary.png of every success rate and decode, over all tasks together."""
    paths = []
    for name, parts in boundaries.items():
        for part in parts:
            if "," in part.label:  # of one task among several
                continue
            path = folder / "plots" / f"{part.label}-{name}-boundary.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            paths.append(save_boundary(part, f"{part.label}: {name}", path))
    return paths


def _format_rate(rate: float, problems: int, level: float) -> str:
    if not problems:
        return "none finished"
    lower, upper = wilson(min(max(rate * problems, 0.0), problems), problems, level)
    return f"{100 * rate:.1f} % [{100 * lower:.1f}, {100 * upper:.1f}]"
