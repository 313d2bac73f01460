"""Save the plot of an evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.files.atomic import replace_path


def save_plot(
    run_dir: Path, decode: str, name: str, evaluator: Evaluator, start: Sequence[Episode], episodes: Sequence[Episode]
) -> Path | None:
    """Save <run_dir>/plots/<decode>-<name>.png; returns the file, or None where the evaluator has no plot.

    Args:
        run_dir: folder of the run.
        decode: of the episodes.
        name: of the evaluator.
        evaluator: that plots.
        start: episodes to compare with; `episodes` itself for no comparison.
        episodes: that were measured.
    """
    figure = Figure(figsize=(6, 4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if not evaluator.plot(axes, start, episodes):
        return None
    axes.set_title(f"{decode}: {name}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    path = run_dir / "plots" / f"{decode}-{name}.png"
    with replace_path(path) as file:
        figure.savefig(file, metadata={"Software": None})
    return path
