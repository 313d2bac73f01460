"""Malformed JSON Lines files of problems and of preferences."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.dataset import DatasetTask
from tasks.preferences import Preferences
from tests.malformed.files.case import Case

GOOD = [{"question": f"{i}+1?", "answer": i + 1} for i in range(6)]


def text_of(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def task(line: bytes | str | dict[str, Any], **settings: Any) -> Callable[[Path], DatasetTask]:
    """A task whose seventh line is this one."""

    def build(folder: Path) -> DatasetTask:
        file, row = folder / "rows.jsonl", json.dumps(line) if isinstance(line, dict) else line
        file.write_bytes(text_of(GOOD) + (row.encode() if isinstance(row, str) else row) + b"\n")
        return DatasetTask(str(file), **settings)

    return build


def whole(content: bytes) -> Callable[[Path], DatasetTask]:
    """A task whose file has these bytes alone."""

    def build(folder: Path) -> DatasetTask:
        (folder / "rows.jsonl").write_bytes(content)
        return DatasetTask(str(folder / "rows.jsonl"))

    return build


def _held_out(folder: Path, rows: list[dict[str, Any]]) -> DatasetTask:
    (folder / "train.jsonl").write_bytes(text_of(GOOD))
    (folder / "held.jsonl").write_bytes(text_of(rows))
    return DatasetTask(str(folder / "train.jsonl"), str(folder / "held.jsonl"))


def _pipe(folder: Path) -> DatasetTask:
    os.mkfifo(folder / "rows.jsonl")
    return DatasetTask(str(folder / "rows.jsonl"))


def _loop(folder: Path) -> DatasetTask:
    (folder / "rows.jsonl").symlink_to(folder / "rows.jsonl")
    return DatasetTask(str(folder / "rows.jsonl"))


def _row(answer: str) -> str:
    return '{"question": "a", "answer": ' + answer + "}"


_LINE = r"rows\.jsonl:7"
_BROKEN = "broken JSON at character .*one complete object"
_NUMBER = "must be text or a finite number"

ROWS = [
    Case("the object ends early", task('{"question": "a"'), _LINE, _BROKEN),
    Case("a comma at the end", task('{"question": "a", "answer": 1,}'), _LINE, _BROKEN),
    Case("single quotes", task("{'question': 'a', 'answer': 1}"), _LINE, _BROKEN),
    Case("keys without quotes", task("{question: 1, answer: 2}"), _LINE, _BROKEN),
    Case("two objects on a line", task('{"question": "a", "answer": 1} {"a": 2}'), _LINE, _BROKEN),
    Case("a comment", task("// a comment"), _LINE, _BROKEN),
    Case("a text without its end", task('{"question": "a'), _LINE, _BROKEN),
    Case("a tab inside a text", task(b'{"question": "a\tb", "answer": 1}'), _LINE, _BROKEN),
    Case("a zero byte", task(b'{"question": "a\x00", "answer": 1}'), _LINE, _BROKEN),
    Case("an unknown escape", task('{"question": "\\x41", "answer": 1}'), _LINE, _BROKEN),
    Case("YAML", task("question: a"), _LINE, _BROKEN),
    Case("CSV", task("a,b,c"), _LINE, _BROKEN),
    Case("a list", task("[1, 2]"), _LINE, "is a list, not an object"),
    Case("a text", task('"question"'), _LINE, "is a text, not an object"),
    Case("a number", task("7"), _LINE, "is a number, not an object"),
    Case("null", task("null"), _LINE, "is null, not an object"),
    Case("a Boolean", task("true"), _LINE, "is true, not an object"),
    Case("an empty object", task("{}"), _LINE, "column 'question' is missing.*task.prompt"),
    Case("no answer", task({"question": "a"}), _LINE, "column 'answer' is missing.*task.answer"),
    Case("keys of another case", task({"Question": "a", "Answer": 1}), _LINE, "'question' is missing"),
    Case("an answer that is null", task({"question": "a", "answer": None}), _LINE, "is empty; fill in"),
    Case("an answer of blanks", task({"question": "a", "answer": " \t"}), _LINE, "is empty; fill in"),
    Case("a question that is empty", task({"question": "", "answer": 1}), _LINE, "'question' is empty"),
    Case("a question that is null", task({"question": None, "answer": 1}), _LINE, "'question' is empty"),
    Case(
        "a question that is a number",
        task({"question": 5, "answer": 1}),
        _LINE,
        "must be text or a list of messages, got 5",
    ),
    Case("a question that is a list", task({"question": ["a"], "answer": 1}), _LINE, "is no chat message.*convert"),
    Case(
        "a question that is an object",
        task({"question": {"a": 1}, "answer": 1}),
        _LINE,
        "must be text or a list of messages, got",
    ),
    Case("an answer that is a list", task({"question": "a", "answer": [1]}), _LINE, _NUMBER),
    Case("an answer that is an object", task({"question": "a", "answer": {}}), _LINE, _NUMBER),
    Case("an answer that is a Boolean", task({"question": "a", "answer": True}), _LINE, _NUMBER),
    Case("an answer that is NaN", task(_row("NaN")), _LINE, _NUMBER),
    Case("an answer that is infinite", task(_row("-Infinity")), _LINE, _NUMBER),
    Case("an answer of 1e999999999", task(_row("1e999999999")), _LINE, _NUMBER),
    Case("an answer of '1e999999999'", task(_row('"1e999999999"')), _LINE, "1e999999999.*exponent"),
    Case("an answer of '-2.5E+1000'", task(_row('"-2.5E+1000"')), _LINE, "exponent"),
    Case("an answer of 6,000 digits", task(_row("9" * 6000)), _LINE, "6000 digits"),
    Case("an answer of 6,000 digits as text", task(_row(f'"{"9" * 6000}"')), _LINE, "6000 digits"),
    Case("an unread number of 6,000 digits", task(_row('1, "id": ' + "9" * 6000)), _LINE, "6000 digits"),
    Case("a fraction of 3,000 digits", task(_row("0." + "3" * 3000)), _LINE, "digits, more than 1000"),
    Case("100,000 nested lists", task(_row("[" * 100_000)), _LINE, "nested too deeply"),
    Case("100,000 nested objects", task('{"a":' * 100_000), _LINE, "nested too deeply"),
    Case("a question twice", task('{"question": "a", "question": "b", "answer": 1}'), _LINE, "'question' stands twice"),
    Case("an answer twice", task('{"question": "a", "answer": 1, "answer": 2}'), _LINE, "'answer' stands twice"),
    Case("an unread key twice", task('{"question": "a", "answer": 1, "x": 1, "x": 1}'), _LINE, "'x' stands twice"),
    Case("a key twice inside", task(_row('1, "x": {"y": 1, "y": 2}')), _LINE, "'y' stands twice"),
    Case("half of a surrogate pair", task('{"question": "\\ud83d", "answer": 1}'), _LINE, "half of a surrogate pair"),
    Case("the other half in the answer", task('{"question": "a", "answer": "\\ude00"}'), _LINE, "surrogate"),
    Case("half of a pair in a key", task('{"question": "a", "answer": 1, "\\ud800": 1}'), _LINE, "surrogate"),
    Case("Latin-1", task(b'{"question": "\xe9", "answer": 1}'), _LINE, r"not UTF-8 text \(byte 14\)"),
    Case("a surrogate in UTF-8", task(b'{"question": "\xed\xa0\x80", "answer": 1}'), _LINE, "not UTF-8"),
    Case("UTF-16", whole(text_of(GOOD).decode().encode("utf-16")), r"rows\.jsonl:1", "not UTF-8"),
    Case("a gzip file", whole(b"\x1f\x8b\x08\x00" + bytes(100)), r"rows\.jsonl:1", "not UTF-8"),
    Case("another answer", task({"question": "3+1?", "answer": 5}), _LINE, r"is '5', but .*:4 .* with '4'; delete"),
    Case("an empty file", whole(b""), r"rows\.jsonl", "has no rows; write"),
    Case("blank lines alone", whole(b"\n \n\t\n"), r"rows\.jsonl", "has no rows; write"),
    Case("a byte order mark alone", whole(b"\xef\xbb\xbf"), r"rows\.jsonl", "has no rows; write"),
    Case("one row", whole(text_of(GOOD[:1])), "task 'dataset'", "too few to hold out 1; add rows"),
    Case("one problem, twice", whole(text_of(GOOD[:1] * 2)), "task 'dataset'", "1 distinct problems are too few"),
    Case("a folder", lambda folder: DatasetTask(str(folder)), "no file", "set task.path"),
    Case("no file", lambda folder: DatasetTask(str(folder / "rows.jsonl")), r"rows\.jsonl", "set task.path"),
    Case(
        "a path of 5,000 characters", lambda _: DatasetTask("a" * 5000), r"aaaa\.\.\.", "no path of a file.*task.path"
    ),
    Case("a zero byte in the path", lambda _: DatasetTask("rows\0.jsonl"), r"rows\\x00", "set task.path"),
    Case("a named pipe", _pipe, r"rows\.jsonl", "no file"),
    Case("a link to itself", _loop, r"rows\.jsonl", "set task.path"),
    Case("a held-out problem that trains", lambda f: _held_out(f, GOOD[:1]), r"held\.jsonl:1", "is trained on"),
    Case("a held-out file without rows", lambda f: _held_out(f, []), r"held\.jsonl", "has no rows"),
    Case(
        "held-out answers that differ",
        lambda folder: _held_out(folder, [{"question": "q", "answer": 1}, {"question": "q", "answer": 2}]),
        r"held\.jsonl:2",
        "answers the same question",
    ),
]


def pair(line: bytes | str | dict[str, Any], name: str = "pairs.jsonl") -> Callable[[Path], Preferences]:
    """Preferences whose fourth line is this one."""
    good = [{"prompt": f"p{i}", "chosen": "yes", "rejected": "no"} for i in range(3)]

    def build(folder: Path) -> Preferences:
        row = json.dumps(line) if isinstance(line, dict) else line
        (folder / name).write_bytes(text_of(good) + (row.encode() if isinstance(row, str) else row) + b"\n")
        return Preferences(str(folder / name))

    return build


def _pair(**changed: Any) -> dict[str, Any]:
    return {"prompt": "p", "chosen": "a", "rejected": "b", **changed}


_PAIR = r"pairs\.jsonl:4"
PAIRS = [
    Case("pairs: broken JSON", pair('{"prompt": '), _PAIR, _BROKEN),
    Case("pairs: a key twice", pair('{"prompt": "a", "chosen": "b", "chosen": "c"}'), _PAIR, "'chosen' stands twice"),
    Case("pairs: half of a surrogate pair", pair('{"prompt": "\\udc00"}'), _PAIR, "surrogate"),
    Case("pairs: not UTF-8", pair(b"\xff\xfe"), _PAIR, "not UTF-8"),
    Case("pairs: nested too deeply", pair("[" * 100_000), _PAIR, "nested too deeply"),
    Case("pairs: a list", pair("[]"), _PAIR, "not an object"),
    Case("pairs: no answers", pair({"prompt": "p"}), _PAIR, "missing or empty"),
    Case("pairs: equal answers", pair(_pair(rejected="a")), _PAIR, "the same answer"),
    Case("pairs: a prompt that is a number", pair(_pair(prompt=7)), _PAIR, "must be one too, got 7"),
    Case("pairs: answers of two kinds", pair(_pair(rejected=[])), _PAIR, "missing or empty"),
    Case(
        "pairs: messages of another template",
        pair(_pair(chosen=[{"from": "x"}], rejected=[{"value": 1}])),
        _PAIR,
        "no chat message",
    ),
    Case("pairs: not parquet", pair("x", "pairs.parquet"), r"pairs\.parquet", "not a readable parquet file.*copy"),
]
