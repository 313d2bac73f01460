"""Read rows of the arrays in an .npz file, compressed or not, without reading whole arrays."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.files.foreign import check_regular, check_stated

_REMEDY = "write the file again with numpy.savez or numpy.savez_compressed"
_PIECE_BYTES = 2**22  # that are decompressed at once, at least a row
_ENDING = ".npy"


@contextmanager
def name_file(place: str) -> Iterator[None]:
    """Convert errors of zip files and of NumPy's headers to one that names the file."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{place}: not a readable .npz file ({reason}); copy it again, or {_REMEDY}") from error


class NpzArray:
    """An array of an .npz file: shape, dtype, and consecutive rows, which are cheapest in ascending order.

    Args:
        file: the open file.
        entry: of the array in it.
    """

    def __init__(self, file: NpzFile, entry: zipfile.ZipInfo):
        self.file, self.name, self._entry = file, f"/{entry.filename.removesuffix(_ENDING)}", entry
        place = f"{file.filename}{self.name}"
        check_stated(entry.file_size, entry.compress_size, place, _REMEDY)
        with name_file(place), file.zip.open(entry) as stream:
            try:
                version = np.lib.format.read_magic(stream)
                read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                self.shape, fortran, self.dtype = read[version](stream)
            except (ValueError, KeyError, TypeError, SyntaxError) as error:
                raise ValueError(f"{place}: not an array of NumPy ({str(error)[:100]}); {_REMEDY}") from error
            self._start = stream.tell()
        if self.dtype.hasobject or not self.shape or (fortran and len(self.shape) > 1):
            what = "objects" if self.dtype.hasobject else "columns" if self.shape else "a single value"
            raise ValueError(f"{place}: holds {what}, not rows of numbers; {_REMEDY}")
        self._row = self.dtype.itemsize * math.prod(self.shape[1:])
        if self._start + self._row * self.shape[0] != entry.file_size:
            raise ValueError(
                f"{place}: shape {list(self.shape)} and {entry.file_size:,} bytes contradict each other; {_REMEDY}"
            )
        self._first, self._rows = 0, np.empty((0, *self.shape[1:]), self.dtype)  # those that were read last
        self._stream: Any = None  # stands behind them

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> np.ndarray:
        """Rows of a slice without a step."""
        start, stop, _ = part.indices(len(self))
        if self._stream is None or not self._first <= start <= self._first + len(self._rows):
            self._seek(start)
        behind = self._first + len(self._rows)
        if stop > behind:
            count = min(max(stop - behind, _PIECE_BYTES // max(self._row, 1), 1), len(self) - behind)
            kept = self._rows[start - self._first :]
            rows = np.empty((len(kept) + count, *self.shape[1:]), self.dtype)
            rows[: len(kept)] = kept
            self._fill(memoryview(rows[len(kept) :].reshape(-1).view(np.uint8)))
            self._first, self._rows = behind - len(kept), rows
        return self._rows[start - self._first : stop - self._first]

    def _seek(self, row: int) -> None:
        with name_file(f"{self.file.filename}{self.name}"):
            if self._stream is None:
                self._stream = self.file.zip.open(self._entry)
            self._stream.seek(self._start + row * self._row)
        self._first, self._rows = row, self._rows[:0].copy()

    def _fill(self, content: memoryview) -> None:
        done = 0
        with name_file(f"{self.file.filename}{self.name}"):
            while done < len(content):
                piece = self._stream.read(min(len(content) - done, _PIECE_BYTES))
                if not piece:
                    raise EOFError("it ends too early")
                content[done : done + len(piece)] = piece
                done += len(piece)

    def close(self) -> None:
        """Forget the rows and the place in the file."""
        if self._stream is not None:
            self._stream.close()
        self._first, self._rows, self._stream = 0, self._rows[:0].copy(), None


class NpzFile(Mapping[str, NpzArray]):
    """The arrays of an .npz file by name, as a group of an HDF5 file has them.

    Args:
        path: of the file.

    Raises:
        ValueError: it is no .npz file, or holds objects, or states more than it holds.
    """

    name = ""

    def __init__(self, path: Path):
        self.filename = str(path)
        check_regular(path, _REMEDY)
        with name_file(self.filename):
            self.zip = zipfile.ZipFile(path)
        entries = [entry for entry in self.zip.infolist() if entry.filename.endswith(_ENDING)]
        self._arrays = {entry.filename.removesuffix(_ENDING): entry for entry in entries}
        self._open: dict[str, NpzArray] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> NpzArray:
        if name not in self._open:
            self._open[name] = NpzArray(self, self._arrays[name])
        return self._open[name]

    def __len__(self) -> int:
        return len(self._arrays)

    def close(self) -> None:
        for array in self._open.values():
            array.close()
        self.zip.close()
