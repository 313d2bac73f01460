"""Tables that compare two checkpoints: for the terminal, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from rich.table import Table

from mmrl.evaluation.statistics.intervals import disjoint, wilson

HEADERS = ("decode", "before", "after", "episodes", "errors", "disjoint")


@dataclass(frozen=True)
class RateEstimate:
    """Success rate of finished episodes with its Wilson interval at `level`; `errors` episodes did not finish."""

    successes: int
    episodes: int
    level: float = 0.95
    errors: int = 0

    def __post_init__(self) -> None:
        if self.episodes + self.errors < 1:
            raise ValueError("a success rate needs at least one episode")

    @property
    def rate(self) -> float:
        return self.successes / self.episodes if self.episodes else nan

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.successes, self.episodes, self.level)

    def __str__(self) -> str:
        lower, upper = self.interval
        if not self.episodes:
            return "none finished"
        return f"{100 * self.rate:.1f} % [{100 * lower:.1f}, {100 * upper:.1f}]"


@dataclass(frozen=True)
class CheckpointComparison:
    """Comparison of two checkpoints under one decode, on one of several tasks or on all episodes."""

    decode: str
    before: RateEstimate
    after: RateEstimate
    task: str = ""

    @property
    def label(self) -> str:
        return f"{self.decode}, {self.task}" if self.task else self.decode

    @property
    def disjoint(self) -> bool:
        """Whether the intervals have no point in common."""
        return disjoint(self.before.interval, self.after.interval)

    @property
    def cells(self) -> tuple[str, ...]:
        """Format the cells of a row in the order of HEADERS; two counts only if they differ."""
        episodes = _counts(self.before.episodes, self.after.episodes)
        errors = _counts(self.before.errors, self.after.errors)
        disjoint = "yes" if self.disjoint else "no"
        return self.label, str(self.before), str(self.after), episodes, errors, disjoint


def format_table(comparisons: Sequence[CheckpointComparison], title: str = "") -> Table:
    """Format comparisons as a rich table: `console.print(format_table(...))`."""
    table = Table(title=title or None, title_justify="left", caption=_caption(comparisons), caption_justify="left")
    for position, header in enumerate(HEADERS):
        table.add_column(header, justify="left" if position == 0 else "right", no_wrap=True)
    for comparison in comparisons:
        table.add_row(*comparison.cells, style="bold" if comparison.disjoint else "")
    return table


def to_json(comparisons: Sequence[CheckpointComparison]) -> str:
    """Serialize comparisons with every number at full precision; rates and interval ends are fractions, not percent."""
    rows = [
        {
            "decode": comparison.decode,
            "task": comparison.task or None,
            "before": _plain(comparison.before),
            "after": _plain(comparison.after),
            "disjoint": comparison.disjoint,
        }
        for comparison in comparisons
    ]
    return json.dumps(rows, indent=2) + "\n"


def _plain(measured: RateEstimate) -> dict[str, Any]:
    lower, upper = measured.interval
    return {
        "successes": measured.successes,
        "episodes": measured.episodes,
        "rate": measured.rate,
        "lower": lower,
        "upper": upper,
        "level": measured.level,
        "errors": measured.errors,
    }


def _counts(*each: int) -> str:
    return " / ".join(map(str, dict.fromkeys(each)))


def _caption(comparisons: Sequence[CheckpointComparison]) -> str:
    levels = {part.level for comparison in comparisons for part in (comparison.before, comparison.after)}
    if len(levels) != 1:
        raise ValueError(f"a table needs rows, all with intervals of one level; got levels {sorted(levels)}")
    return f"success rate [Wilson {100 * levels.pop():g} % interval]"
