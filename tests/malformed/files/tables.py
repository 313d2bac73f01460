"""Malformed CSV, JSON, parquet and Arrow files of problems, and rows that do not have the form that is named."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from tasks.dataset import DatasetTask
from tests.malformed.files.case import Case
from tests.malformed.files.images import encoded
from tests.malformed.files.rows import GOOD, text_of


def file(name: str, content: bytes | str, **settings: Any) -> Callable[[Path], DatasetTask]:
    """A task whose file has this name and content."""

    def build(folder: Path) -> DatasetTask:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return DatasetTask(str(folder / name), **settings)

    return build


def parquet(rows: list[dict[str, Any]] | pyarrow.Table) -> bytes:
    stored = io.BytesIO()
    table = rows if isinstance(rows, pyarrow.Table) else pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, stored)
    return stored.getvalue()


def arrow(rows: list[dict[str, Any]], stream: bool = True) -> bytes:
    stored, table = io.BytesIO(), pyarrow.Table.from_pylist(rows)
    make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with make(stored, table.schema) as writer:
        writer.write_table(table)
    return stored.getvalue()


def lines(row: dict[str, Any], **settings: Any) -> Callable[[Path], DatasetTask]:
    """A task whose first line is this row, read in the format that `settings` name."""
    return file("rows.jsonl", text_of([row, *GOOD]), **settings)


def verl(**changed: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "1+1?"}
    return {"prompt": [message], "reward_model": {"style": "rule", "ground_truth": "2"}, **changed}


def _twice() -> pyarrow.Table:
    column = pyarrow.array(["a", "b"])
    return pyarrow.Table.from_arrays([column, column, column], names=["question", "answer", "answer"])


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes(byte ^ 0xFF for byte in content[at : at + 40]) + content[at + 40 :]


CSV = "question,answer\n1+1?,2\n2+1?,3\n3+1?,4\n"
_ROW, _PARQUET, _ARROW = r"rows\.csv:5", r"rows\.parquet", r"rows\.arrow"
_UNREADABLE = "not a readable parquet file .*copy it again"
_LARGE = parquet([{"question": f"{i}? " + "x" * 50, "answer": str(i)} for i in range(400)])
_PNG = encoded("PNG")
_FIRST, _VERL = r"rows\.jsonl:1", {"format": "verl"}
_USER = {"role": "user", "content": "a"}

TABLES = [
    Case("csv: too few values", file("rows.csv", CSV + "4+1?\n"), _ROW, "1 values, but the header names 2"),
    Case("csv: too many values", file("rows.csv", CSV + "4,5+1?,6\n"), _ROW, "3 values.*double quotes"),
    Case("csv: a quote inside a value", file("rows.csv", CSV + '"a"b,1\n'), _ROW, "broken CSV .*expected after"),
    Case("csv: a quote without its end", file("rows.csv", CSV + '"a,1\n'), r"rows\.csv", "broken CSV .*end of data"),
    Case(
        "csv: a value of 200,000 characters",
        file("rows.csv", CSV + "a" * 200_000 + ",1\n"),
        r"rows\.csv",
        "field limit",
    ),
    Case("csv: no answer", file("rows.csv", CSV + "a,\n"), _ROW, "column 'answer' is empty"),
    Case(
        "csv: a column twice", file("rows.csv", "question,answer,answer\na,1,2\n"), r"rows\.csv:1", "every column once"
    ),
    Case(
        "csv: a column without a name",
        file("rows.csv", "question,answer,\na,1,2\n"),
        r"rows\.csv:1",
        "every column once",
    ),
    Case("csv: no header", file("rows.csv", "1+1?,2\n2+1?,3\n"), r"rows\.csv:2", "column 'question' is missing"),
    Case("csv: another separator", file("rows.csv", CSV.replace(",", ";")), r"rows\.csv:2", "'question;answer'"),
    Case("csv: Latin-1", file("rows.csv", CSV.encode() + b"\xe9,1\n"), r"rows\.csv", "not UTF-8"),
    Case("csv: a header alone", file("rows.csv", "question,answer\n"), r"rows\.csv", "has no rows"),
    Case("csv: no bytes", file("rows.csv", ""), r"rows\.csv", "has no rows"),
    Case("tsv: commas", file("rows.tsv", CSV), r"rows\.tsv:2", "'question,answer'"),
    Case(
        "json: a list that ends early",
        file("rows.json", '[{"question": "a", "answer": 1},'),
        r"rows\.json",
        "broken JSON",
    ),
    Case("json: a list of numbers", file("rows.json", "[1, 2]"), r"rows\.json:row 1", "a number, not an object"),
    Case("json: an empty list", file("rows.json", "[]"), r"rows\.json", "has no rows"),
    Case(
        "json: a dictionary of columns",
        file("rows.json", '{"question": ["a"], "answer": [1]}'),
        r"rows\.json:1",
        "chat",
    ),
    Case("parquet: a text", file("rows.parquet", "x"), _PARQUET, _UNREADABLE),
    Case("parquet: no bytes", file("rows.parquet", ""), _PARQUET, _UNREADABLE),
    Case("parquet: cut in two", file("rows.parquet", _LARGE[: len(_LARGE) // 2]), _PARQUET, _UNREADABLE),
    Case("parquet: its end is cut", file("rows.parquet", _LARGE[:-20]), _PARQUET, _UNREADABLE),
    Case("parquet: flipped bytes in a page", file("rows.parquet", _flipped(_LARGE, 10)), _PARQUET, _UNREADABLE),
    Case(
        "parquet: no rows",
        file("rows.parquet", parquet(pyarrow.table({"question": [], "answer": []}))),
        _PARQUET,
        "no rows",
    ),
    Case("parquet: a column twice", file("rows.parquet", parquet(_twice())), _PARQUET, "'answer' stands twice"),
    Case(
        "parquet: an answer that is null",
        file("rows.parquet", parquet([*GOOD, {"question": "a", "answer": None}])),
        r"rows\.parquet:row 7",
        "column 'answer' is empty",
    ),
    Case(
        "parquet: an answer that is NaN",
        file("rows.parquet", parquet([{"question": "a", "answer": float("nan")}])),
        r"rows\.parquet:row 1",
        "finite number",
    ),
    Case(
        "parquet: an answer of bytes",
        file("rows.parquet", parquet([{"question": "a", "answer": b"x"}])),
        r"rows\.parquet:row 1",
        "must be text or a finite number",
    ),
    Case(
        "parquet: no such column",
        file("rows.parquet", parquet([{"problem": "a", "answer": 1}])),
        r"rows\.parquet:row 1",
        r"the row has \['answer', 'problem'\].*task\.prompt.*task\.format",
    ),
    Case(
        "parquet: a broken image",
        file(
            "rows.parquet",
            parquet([{**row, "images": [{"bytes": _PNG[:200], "path": None}]} for row in GOOD]),
            images="images",
        ),
        r"rows\.parquet:row 1",
        "image of 200 bytes cannot be read as an image",
    ),
    Case(
        "parquet: an image without bytes and path",
        file(
            "rows.parquet",
            parquet([{**row, "images": [{"bytes": None, "path": None}]} for row in GOOD]),
            images="images",
        ),
        r"rows\.parquet:row 1",
        "must be the path of an image file, its bytes",
    ),
    Case("arrow: a text", file("rows.arrow", "x"), _ARROW, "not a readable Arrow file"),
    Case("arrow: cut in two", file("rows.arrow", arrow(GOOD)[:300]), _ARROW, "not a readable Arrow file"),
    Case(
        "arrow: a file that is cut",
        file("rows.arrow", arrow(GOOD, False)[:-30]),
        _ARROW,
        "not a readable Arrow file|Arrow",
    ),
    Case(
        "verl: no reward_model", lines({"prompt": [_USER]}, **_VERL), _FIRST, "'reward_model.ground_truth' is missing"
    ),
    Case(
        "verl: no ground truth",
        lines(verl(reward_model={"style": "model"}), **_VERL),
        _FIRST,
        "ground_truth' is missing",
    ),
    Case(
        "verl: a ground truth that is a list",
        lines(verl(reward_model={"ground_truth": [2]}), **_VERL),
        _FIRST,
        "finite number",
    ),
    Case("verl: an empty prompt", lines(verl(prompt=[]), **_VERL), _FIRST, "'prompt' is empty"),
    Case(
        "verl: an image too few",
        lines(verl(prompt=[{"role": "user", "content": "<image><image>same?"}], images=[]), **_VERL),
        _FIRST,
        "2 image part.*brings 0",
    ),
    Case(
        "messages without a role", lines({"prompt": [{"content": "a"}], "solution": 1}, format="trl"), _FIRST, "'role'"
    ),
    Case(
        "ShareGPT's messages",
        lines({"prompt": [{"from": "human", "value": "a"}], "solution": 1}, format="trl"),
        _FIRST,
        "convert",
    ),
    Case(
        "an unknown role",
        lines({"prompt": [{"role": "bot", "content": "a"}], "solution": 1}, format="trl"),
        _FIRST,
        "'role'",
    ),
    Case(
        "a message without content",
        lines({"prompt": [{"role": "user"}], "solution": 1}, format="trl"),
        _FIRST,
        "content is null",
    ),
    Case(
        "an unknown content part",
        lines({"prompt": [{"role": "user", "content": [{"type": "audio"}]}], "solution": 1}, format="trl"),
        _FIRST,
        "content part",
    ),
    Case(
        "a prompt that ends with the assistant's message",
        lines({"prompt": [_USER, {"role": "assistant", "content": "b"}], "solution": 1}, format="trl"),
        _FIRST,
        "ends with the assistant.*conversations",
    ),
    Case(
        "a column of the template that is missing",
        file("rows.jsonl", text_of(GOOD), template="{hint}"),
        _FIRST,
        "'hint' is missing",
    ),
    Case(
        "an answer without its marker",
        file("rows.jsonl", text_of(GOOD), answer_extract="marker"),
        _FIRST,
        "answer_extract",
    ),
    Case(
        "no held-out column",
        file("rows.jsonl", text_of(GOOD), held_out_column="part"),
        _FIRST,
        "set task.held_out_column",
    ),
    Case(
        "no held-out row",
        file("rows.jsonl", text_of(GOOD), held_out_column="question"),
        "in no rows",
        "set task.held_out_values",
    ),
    Case("a video that is none", lines({**GOOD[0], "v": "a.mp4"}, videos="v"), _FIRST, "a.mp4, which does not exist"),
    Case("a folder without rows", lambda folder: DatasetTask(str(folder)), "no file", "set task.path"),
    Case(
        "every row is bad",
        file("rows.jsonl", '{"question": "a"}\n' * 3, skip_bad=True),
        "no row to use",
        "correct the first",
    ),
]
