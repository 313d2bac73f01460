"""What a user is told: which errors are messages, and the typed parser's long one as a line that names the key."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import traceback
from pathlib import Path

_KEY = re.compile(r'^[Pp]arser key "(?P<key>[^"]+)":')
_CLASS = re.compile(r"^Problem with given class_path '(?P<path>[^']+)':")
_NOISE = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'NoneType'>")

_MANY = 15  # more keys than a reader wants to see where one is clearly meant


OWN = tuple(str(Path(__file__).parent.parent / name) + os.sep for name in ("mmrl", "tasks", "sims"))


def raised_on_purpose(error: BaseException) -> bool:
    """Whether the error was born in a `raise` statement of mmrl, tasks or sims: then its text is for the user."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(OWN) and (frames[-1].line or "").startswith("raise ")


def readable(text: str) -> str:
    """jsonargparse nests one level per key and class; the deepest complaint is the cause.

    Its text looks like 'Parser key "model": ... Problem with given class_path 'C': ... Option 'x' is not accepted'.
    """
    best: tuple[int, list[str], str | None, str] | None = None
    stack: list[tuple[int, str, str]] = []  # (indent, "key" or "class", name)
    for raw in text.splitlines():
        line = raw.strip()
        words = line.removeprefix("- ")
        indent = len(raw) - len(raw.lstrip()) + len(line) - len(words)
        if not words or words.startswith(_NOISE):
            continue
        stack = [entry for entry in stack if entry[0] < indent]
        if found := _KEY.match(words):
            stack.append((indent, "key", found["key"]))
            words = words[found.end() :].strip()
        elif found := _CLASS.match(words):
            stack.append((indent, "class", found["path"]))
            words = words[found.end() :].strip()
        if words and (best is None or len(stack) > best[0]):
            keys = [name for _, kind, name in stack if kind == "key"]
            classes = [name for _, kind, name in stack if kind == "class"]
            best = (len(stack), keys, classes[-1] if classes else None, words)
    if best is None:
        return text.strip().splitlines()[0] if text.strip() else "the configuration cannot be read"
    _, keys, part, complaint = best
    where = ".".join(keys) + (f" ({part})" if part else "")
    return f"{where}: {_plain(complaint, part)}" if where else _plain(complaint, part)


def _plain(complaint: str, part: str | None) -> str:
    if found := re.match(r"Option '([^']+)' is not accepted", complaint):
        return f"unknown key {found[1]!r}.{_alternatives(found[1], part)}"
    if found := re.match(r"Group 'trainer' does not accept option '([^']+)'", complaint):
        return f"trainer: unknown key {found[1]!r}.{_alternatives(found[1], 'lightning.pytorch.Trainer')}"
    if found := re.match(r"Expected an? (?:<class '([^']+)'>|(.+?))\. Got value: (.*)", complaint):
        wanted = (found[1] or found[2]).replace("typing.", "").replace("collections.abc.", "")
        return f"must be {wanted}, got {found[3]}"
    return complaint


def _alternatives(word: str, part: str | None) -> str:
    """What the constructor takes instead."""
    if part is None:
        return ""
    module, _, name = part.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return ""
    known = [key for key in inspect.signature(made).parameters if key != "self"]
    near = difflib.get_close_matches(word.split(".")[0], known, n=1)
    if near and len(known) > _MANY:
        return f" Did you mean {near[0]!r}?"
    return (f" Did you mean {near[0]!r}?" if near else "") + f" It takes {', '.join(known) or 'nothing'}"
