"""Strict JSON parser for untrusted files: refuses values that Python's parser accepts silently or fails on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.files.foreign import read_foreign

MAX_DIGITS = 1000
"""Digits of a number; longer ones cannot be meant, and Python does not turn them into text."""

MAX_BYTES = 64 * 2**20
"""Size of a whole JSON file. Files of rows have no limit."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN = 80  # characters of a value that a message quotes


class BrokenJSON(ValueError):
    """The text is not valid JSON of the required form; the message names the place and the reason."""


def parse_json(text: str | bytes, place: str, remedy: str, finite: bool = True) -> Any:
    """Parse one JSON text in UTF-8.

    Args:
        text: with or without a byte order mark.
        place: file, or file and line, for messages.
        remedy: what to do, the end of every message.
        finite: refuse NaN, Infinity and numbers too large for float64.

    Raises:
        BrokenJSON: not UTF-8, not JSON, a key twice in one object, nested too deeply to be read, a number of more than
            `MAX_DIGITS` digits, half of a surrogate pair, or (with `finite`) a number that is not finite.
    """

    # hooks of the parser, which refuse what json accepts
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise BrokenJSON(f"{place}: key {quote(twice)} stands twice in one object; {remedy}")
        return members

    def integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise BrokenJSON(f"{place}: a number of {len(digits)} digits, more than {MAX_DIGITS}; {remedy}")
        return int(digits)

    def real(digits: str) -> float:
        if len(digits) > MAX_DIGITS:
            raise BrokenJSON(f"{place}: a number of {len(digits)} digits, more than {MAX_DIGITS}; {remedy}")
        value = float(digits)
        if finite and not math.isfinite(value):
            raise BrokenJSON(f"{place}: the number {quote(digits)} is too large for a 64-bit float; {remedy}")
        return value

    def constant(name: str) -> float:
        if finite:
            raise BrokenJSON(f"{place}: {name} is not a finite number; {remedy}")
        return float(name)

    # bytes to text to a value
    try:
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BrokenJSON(f"{place}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
    try:
        hooks: dict[str, Any] = dict(object_pairs_hook=unique, parse_int=integer, parse_float=real)
        value = json.loads(plain, parse_constant=constant, **hooks)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise BrokenJSON(f"{place}: broken JSON at {line}character {error.colno}: {error.msg}; {remedy}") from error
    except RecursionError as error:
        raise BrokenJSON(f"{place}: brackets are nested too deeply to be read; {remedy}") from error
    if _SURROGATE.search(plain) and (half := _half_pair(value)) is not None:
        raise BrokenJSON(f"{place}: {quote(half)} holds half of a surrogate pair, which is no character; {remedy}")
    return value


def read_json_object(path: Path, remedy: str, finite: bool = True) -> dict[str, Any]:
    """Read the JSON object in a file.

    Args:
        path: of the file.
        remedy: what to do about a broken one, the end of every message.
        finite: refuse NaN, Infinity and numbers too large for float64.

    Raises:
        BrokenJSON: as `parse_json`, and where the file cannot be read, is larger than `MAX_BYTES`, or holds no object.
    """
    try:
        text = read_foreign(path, remedy, MAX_BYTES)
    except OSError as error:
        raise BrokenJSON(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise BrokenJSON(str(error)) from error
    value = parse_json(text, str(path), remedy, finite)
    if not isinstance(value, dict):
        raise BrokenJSON(f"{path}: holds {kind(value)}, not an object with named entries; {remedy}")
    return value


def need_object(entry: Any, place: str, remedy: str) -> dict[str, Any]:
    """Return the entry; refuse it unless it is an object."""
    if not isinstance(entry, Mapping):
        raise BrokenJSON(f"{place}: must be an object with named entries, is {kind(entry)}; {remedy}")
    return dict(entry)


def kind(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def quote(value: Any) -> str:
    """Format a value as Python writes it, printable and short."""
    try:
        text = ascii(value) if isinstance(value, str) and _unprintable(value) else repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _unprintable(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text[: _SHOWN + 1])


def _half_pair(value: Any) -> str | None:
    """Return the first text, key or value, that cannot be encoded in UTF-8."""
    open_values = [value]
    while open_values:
        one = open_values.pop()
        if isinstance(one, str):
            try:
                one.encode()
            except UnicodeEncodeError:
                return one
        elif isinstance(one, dict):
            open_values += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            open_values += one
    return None
