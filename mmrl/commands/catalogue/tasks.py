"""`mmrl list tasks`: every task with what its prompts show, its floor and its ceiling."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mmrl.experiments.results import ABSENT, FOLDER, result_file

SCORE = "exact"
"""The score whose floor and ceiling are shown."""


def tabulate_tasks(rows: Sequence[tuple[str, str]]) -> Table:
    """Table of (option, description) rows, with the stored floor and ceiling of each option."""
    caption = CAPTION.format(unmeasured="not measured" if FOLDER.is_dir() else ABSENT)
    table = Table(box=None, pad_edge=False, caption_justify="left", caption=caption, caption_style="")
    table.add_column("task", no_wrap=True, style="bold")
    for name in ("kind", "floor", "ceiling"):
        table.add_column(name, no_wrap=True, justify="left" if name == "kind" else "right")
    table.add_column("", overflow="fold")
    for name, description in rows:
        table.add_row(*map(Text, (name, *_baselines(name), description)))
    return table


CAPTION = (
    "floor and ceiling: % of held-out problems that a random or the commonest answer, and the task's expert, solve; "
    "an expert may know what a policy is not shown. -: {unmeasured}. "
    "mmrl evaluate task=NAME policy=random|oracle measures them"
)


def _baselines(option: str) -> tuple[str, str, str]:
    path = result_file("task", option)
    if not path.exists():
        return "-", "-", "-"
    row = json.loads(path.read_text())
    floor = max(row["random"][SCORE], row["majority"][SCORE])
    return row["kind"], f"{100 * floor:.1f}", f"{100 * row['expert'][SCORE]:.0f}"
