"""Rows of named columns in a file that has no name: written once, read by their numbers."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import ConfigError
from mmrl.files.atomic import FULL


class RowFile:
    """Rows of equal size, one after the other, each with all columns: a window of rows is one read.

    The file is removed from its folder at once, so that nothing is left however the process ends.

    Args:
        folder: where the file lies; made where it is missing.

    Raises:
        ConfigError: the folder cannot be written to.
    """

    def __init__(self, folder: Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._number, name = tempfile.mkstemp(dir=folder)
            os.unlink(name)
        except OSError as error:
            raise ConfigError(
                f"data.folder={folder}: the recording cannot be written there ({error.strerror}); name a folder on a "
                "disk with data.folder=FOLDER"
            ) from error
        self._close = weakref.finalize(self, os.close, self._number)
        self.folder = folder
        self.layout: np.dtype | None = None  # of one row; known from the first rows
        self.size = 0  # rows that are written

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return 0 if self.layout is None else self.size * self.layout.itemsize

    def append(self, columns: Mapping[str, Tensor]) -> None:
        """Write rows behind those that are there.

        Raises:
            ValueError: the columns are not those of the first rows.
            ConfigError: the disk is full.
        """
        arrays = {name: column.cpu().numpy() for name, column in columns.items()}
        layout = np.dtype([(name, array.dtype, array.shape[1:]) for name, array in sorted(arrays.items())])
        if self.layout is None:
            self.layout = layout
        if layout != self.layout:
            raise ValueError(f"the rows of {self.folder} have columns {self.layout}, got {layout}")
        rows = np.empty(len(next(iter(arrays.values()))), layout)
        for name, array in arrays.items():
            rows[name] = array
        self._write(memoryview(rows.view(np.uint8)))
        self.size += len(rows)

    def _write(self, content: memoryview) -> None:
        done = 0
        while done < len(content):
            try:
                done += os.pwrite(self._number, content[done:], self.bytes + done)
            except OSError as error:
                if error.errno not in FULL and error.errno != errno.EIO:
                    raise
                raise ConfigError(
                    f"data.folder={self.folder}: no room for the rows of the recording after {self.bytes + done:,} "
                    f"bytes ({error.strerror}); name a folder on a larger disk with data.folder=FOLDER"
                ) from error

    def read(self, first: Tensor, width: int) -> dict[str, Tensor]:
        """Read windows of consecutive rows: columns [N * width, ...]. What lies behind the last row is 0.

        Args:
            first: number of the first row of each window, int64 [N].
            width: rows of a window.
        """
        if self.layout is None or not self._close.alive:  # its number may be another file's by now
            raise ValueError(f"{self.folder}: the file of the recording has no rows, or is closed")
        rows = np.zeros((len(first), width), self.layout)
        content, window = memoryview(rows.view(np.uint8).reshape(-1)), width * self.layout.itemsize
        starts = first.numpy() * self.layout.itemsize
        for i in starts.argsort().tolist():  # in the order of the file
            self._read(content[i * window : (i + 1) * window], int(starts[i]))
        flat = rows.reshape(-1)
        return {name: torch.from_numpy(np.ascontiguousarray(flat[name])) for name in self.layout.names or ()}

    def _read(self, content: memoryview, start: int) -> None:
        """Fill `content` from byte `start` on, as far as there are rows."""
        done, wanted = 0, min(len(content), self.bytes - start)
        while done < wanted:
            count = os.preadv(self._number, [content[done:wanted]], start + done)
            if not count:
                raise OSError(f"{self.folder}: the file of the recording ends at byte {start + done:,}")
            done += count

    def close(self) -> None:
        """Close the file, which ends it; may be called twice."""
        self._close()
