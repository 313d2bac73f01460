"""One malformed file: how it is made, what reads it, and what the refusal must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A malformed file.

    Args:
        name: what is wrong, in a few words.
        build: makes the files in an empty folder and gives what is to be read.
        place: regular expression of the file, row or field that the refusal must name.
        expected: regular expression of what it must say of the value.
    """

    name: str
    build: Callable[[Path], object]
    place: str
    expected: str
