"""Logger for metrics.csv: one row per iteration, on disk when it is logged, kept through kills and resumes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from mmrl.files.atomic import append_to, replace_file
from mmrl.files.foreign import read_foreign

NAME, INDEX = "metrics.csv", "iterations"
_REMEDY = "give the folder of a run, with the metrics.csv that it wrote"
_LARGEST = 2**30  # bytes


class MetricsCSV(Logger):
    """Append each row to <run_dir>/metrics.csv at once, and keep the rows of the run that is resumed.

    The first row of this process that has an iteration replaces all rows that an earlier process wrote from that
    iteration on, since a resumed run repeats them. A new column is added to the earlier rows, empty. A row that a
    killed process wrote in part is dropped.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str):
        super().__init__()
        self.path = Path(run_dir) / NAME
        self._columns: list[str] | None = None  # None until the file has been read
        self._earlier = 0  # rows of earlier processes, until the first row with an iteration

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The configuration is in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write one row.

        Args:
            metrics: numbers by column; "iterations" says how many iterations the run has done.
            step: optimiser steps so far, a column too.
        """
        row = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
        row["step"] = step
        cut = self._earlier > 0 and INDEX in row
        columns = self._columns
        if columns is None or cut or not row.keys() <= set(columns):
            rows = read_rows(self.path)
            if columns is None:
                self._earlier = len(rows)
                cut = self._earlier > 0 and INDEX in row
            if cut:
                rows = [*_before(rows[: self._earlier], float(row[INDEX])), *rows[self._earlier :]]
                self._earlier = 0
            self._columns = sorted({*row, *(name for each in rows for name in each)})
            with replace_file(self.path) as file:
                file.write(_lines(self._columns, [*rows, row], header=True))
            return
        with append_to(self.path) as file:
            file.write(_lines(columns, [row]))


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the complete rows of a metrics file as text, without empty values; a missing file has no rows.

    Raises:
        ValueError: it is no file, or no table of texts in UTF-8.
    """
    if not path.exists():
        return []
    text = read_foreign(path, _REMEDY, _LARGEST).decode()
    whole = text[: text.rfind("\n") + 1]  # a last line without a newline is incomplete
    reader = csv.DictReader(io.StringIO(whole, newline=""))
    try:
        return [{name: value for name, value in row.items() if name and value} for row in reader]
    except csv.Error as error:
        raise ValueError(f"{path}: {error}; {_REMEDY}") from error


def _before(rows: list[dict[str, str]], iteration: float) -> list[dict[str, str]]:
    """Return the rows before the first row of this iteration or a later one; rows are in order of time."""
    first = next((i for i, row in enumerate(rows) if INDEX in row and float(row[INDEX]) >= iteration), len(rows))
    return rows[:first]


def _lines(columns: list[str], rows: list[dict[str, Any]], header: bool = False) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
