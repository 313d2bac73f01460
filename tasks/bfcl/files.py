"""Files of the Berkeley Function-Calling Leaderboard, version 4: requests with functions, and the right calls."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mmrl.files.strict_json import quote
from tasks.bfcl.verdict import TYPES, Answer, Function

PACKAGE = "bfcl_eval"
PARTS = (
    *("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance"),
)
"""Parts with one turn of Python calls; `live` ones were written by users."""
WITHOUT_ANSWERS = ("irrelevance", "live_irrelevance", "live_relevance")
"""Parts whose requests ask for no call, or for any call."""


@dataclass(frozen=True)
class CallRequest:
    """A row: the conversation before the answer, the functions on offer, and the right calls.

    `answers` has a pair for each call: the function's name, and by parameter the values that are right.
    """

    part: str
    place: str
    messages: tuple[dict[str, str], ...]
    functions: tuple[Function, ...]
    answers: tuple[tuple[str, Answer], ...]


def find_folder(path: str | None) -> Path:
    """Return the folder of the files: `path`, or that of the installed package `bfcl_eval`, which is not imported.

    Raises:
        FileNotFoundError: there is no such folder, or the package is not installed.
    """
    if path is not None:
        folder = Path(path).expanduser().resolve()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"task 'bfcl': there is no folder {folder}; set task.path to the folder with BFCL_v4_simple_python.json"
            )
        return folder
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    if not places:
        raise FileNotFoundError(
            "task 'bfcl': its files are in the package bfcl-eval, which is not installed: `make bfcl`, or without make "
            "pip install --no-deps bfcl-eval; or set task.path to a folder that has them"
        )
    return Path(places[0]) / "data"


@lru_cache(maxsize=len(PARTS))
def read_part(folder: Path, part: str) -> tuple[CallRequest, ...]:
    """Read the requests of a part in order.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a row is not as the leaderboard writes it; the message has its file and line.
    """
    file = folder / f"BFCL_v4_{part}.json"
    beside = folder / "possible_answer" / file.name
    rows = list(_read_lines(file))
    rights = [[]] * len(rows) if part in WITHOUT_ANSWERS else [right for _, right in _read_lines(beside)]
    if len(rights) != len(rows):
        raise ValueError(f"{beside} has {len(rights)} rows, {file} has {len(rows)}; take both of one version")
    return tuple(_read_request(part, place, row, right) for (place, row), right in zip(rows, rights))


def _read_lines(file: Path) -> Iterator[tuple[str, Any]]:
    if not file.is_file():
        raise FileNotFoundError(f"task 'bfcl': there is no file {file}; correct task.path or task.parts")
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{file}:{number}"
            try:
                yield place, json.loads(line)
            except ValueError as error:
                raise ValueError(f"{place}: is not JSON ({error})") from error


def _read_request(part: str, place: str, row: Any, right: Any) -> CallRequest:
    try:
        (turn,) = row["question"]
        messages = tuple({"role": m["role"], "content": m["content"]} for m in turn)
        functions = tuple(row["function"])
        pairs = [] if part in WITHOUT_ANSWERS else [next(iter(call.items())) for call in right["ground_truth"]]
        names = {function["name"]: function["parameters"]["properties"] for function in functions}
        unknown = [name for name, _ in pairs if name not in names]
        kinds = {p["type"] for properties in names.values() for p in properties.values()}
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ValueError(
            f"{place}: is no row of BFCL v4 with one turn ({type(error).__name__}: {error}); it needs question, "
            "function and, in possible_answer, ground_truth"
        ) from error
    if unknown:
        raise ValueError(f"{place}: the right calls have functions that the row lacks: {quote(unknown)}")
    if kinds - TYPES.keys():
        raise ValueError(f"{place}: parameters of unknown types {sorted(kinds - TYPES.keys())}; it has {list(TYPES)}")
    if right and part not in WITHOUT_ANSWERS and right.get("id") != row.get("id"):
        raise ValueError(f"{place}: row {row.get('id')!r} stands beside the right calls of {right.get('id')!r}")
    return CallRequest(part, place, messages, functions, tuple(pairs))
