"""Read the documents of a folder and split them into passages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mmrl.files.foreign import check_regular, read_foreign
from mmrl.files.strict_json import BrokenJSON, need_object, parse_json

SUFFIXES = (".txt", ".md", ".jsonl")
MAX_FILE = 64 * 2**20
MAX_FOLDER = 2**30
"""Bytes of a file and of all files; the index of a folder lies in memory."""
_SHOWN = 10  # broken files that a message names
_REMEDY = "save it as UTF-8 text, or move it out of the folder"
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Passage:
    """Part of a document: its file, with the line of a .jsonl file, and its text."""

    source: str
    text: str


@dataclass(frozen=True)
class Document:
    """File of a folder, with what tells whether it has changed."""

    path: Path
    name: str
    size: int
    modified_ns: int


def list_documents(path: str, key: str) -> tuple[Document, ...]:
    """List the .txt, .md and .jsonl files of a folder and its subfolders in order of their names, or the one file.

    Hidden files and folders are left out, and links to folders are not followed.

    Args:
        path: of the folder or file.
        key: of the configuration that names it, for messages.

    Raises:
        ValueError: there is no such file, one is no regular file, or they are too large.
    """
    if not path:
        raise ValueError(f"{key} is empty: name a folder of .txt, .md or .jsonl files, as in {key}=docs/")
    root = Path(path)
    if not root.exists():
        raise ValueError(f"{key}: {path} does not exist; name a folder of .txt, .md or .jsonl files")
    files = [root] if not root.is_dir() else _walk(root)
    if not files or (not root.is_dir() and root.suffix.lower() not in SUFFIXES):
        raise ValueError(f"{key}: {path} holds no file that ends in {', '.join(SUFFIXES)}")
    documents, problems = [], []
    for file in files:
        try:
            size = check_regular(file, _REMEDY, MAX_FILE)
        except ValueError as error:
            problems.append(str(error))
        else:
            name = file.relative_to(root).as_posix() if root.is_dir() else file.name
            documents.append(Document(file, name, size, os.stat(file).st_mtime_ns))
    _refuse(problems, key)
    total = sum(document.size for document in documents)
    if total > MAX_FOLDER:
        raise ValueError(f"{key}: {path} holds {total:,} bytes, more than {MAX_FOLDER:,}; name a smaller folder")
    return tuple(documents)


def read_passages(documents: tuple[Document, ...], max_chars: int, key: str) -> list[Passage]:
    """Read documents and split them into passages of at most `max_chars` characters.

    A row of a .jsonl file is a document of its own: its column `text` or `contents`, after its `title` if it has one.
    The title is repeated in each passage of the row and does not count as its characters.

    Raises:
        ValueError: names every file that is not UTF-8, and every row that has no text.
    """
    passages: list[Passage] = []
    problems: list[str] = []
    for document in documents:
        try:
            for source, title, text in _read_texts(document):
                parts = split_passages(text, max_chars)
                passages += [Passage(source, f"{title}\n{part}" if title else part) for part in parts]
        except ValueError as error:
            problems.append(str(error))
    _refuse(problems, key)
    if not passages:
        raise ValueError(f"{key}: the {len(documents)} files hold no text; name a folder with documents")
    return passages


def split_passages(text: str, max_chars: int) -> list[str]:
    """Join whole paragraphs to passages of at most `max_chars` characters; a longer paragraph is cut between words."""
    passages: list[str] = []
    for paragraph in _BLANK_LINE.split(text):
        for piece in _cut(paragraph.strip(), max_chars):
            if passages and len(passages[-1]) + 2 + len(piece) <= max_chars:
                passages[-1] += f"\n\n{piece}"
            else:
                passages.append(piece)
    return passages


def _walk(root: Path) -> list[Path]:
    files: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        files += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES)


def _read_texts(document: Document) -> Iterator[tuple[str, str, str]]:
    """Yield source, title and text of each document in a file."""
    content = read_foreign(document.path, _REMEDY, MAX_FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{document.path}: not UTF-8 text (byte {error.start}); {_REMEDY}") from error
    if document.path.suffix.lower() != ".jsonl":
        yield document.name, "", text.replace("\r\n", "\n")
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{document.path}, line {number}"
            yield f"{document.name}:{number}", *_read_row(line, place)


def _read_row(line: str, place: str) -> tuple[str, str]:
    """Return title and text of a row."""
    remedy = 'write one object a line, such as {"title": "...", "text": "..."}'
    row = need_object(parse_json(line, place, remedy, finite=False), place, remedy)
    text, title = row.get("text", row.get("contents")), row.get("title")
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise BrokenJSON(f"{place}: `text` (or `contents`) must be a text, and `title` a text or absent; {remedy}")
    return (title or "").strip(), text


def _cut(text: str, max_chars: int) -> Iterator[str]:
    start = 0
    while start < len(text):
        window = text[start : start + max_chars]
        space = max(window.rfind(" "), window.rfind("\n"))
        whole = start + max_chars >= len(text) or space <= 0 or text[start + max_chars].isspace()
        size = len(window) if whole else space
        if piece := text[start : start + size].strip():
            yield piece
        start += size


def _refuse(problems: list[str], key: str) -> None:
    if problems:
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ValueError(
            f"{key}: {len(problems)} files cannot be searched:\n  " + "\n  ".join(problems[:_SHOWN]) + more
        )
