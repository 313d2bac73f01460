"""Errors of the typed parser for users: its nested message as one line with the key, and keys that it drops."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import traceback
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonargparse import Namespace

from mmrl.config.renamed import find_new_name
from mmrl.config.signatures import constructor_parameters
from mmrl.core.errors import ConfigError

_KEY = re.compile(r'^[Pp]arser key "(?P<key>[^"]+)":')
_CLASS = re.compile(r"^Problem with given class_path '(?P<path>[^']+)':")
_CALLABLE = re.compile(r"^Type typing\.Callable.* expects a function or a callable class: ")
_NOISE = (
    *("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'NoneType'>"),
    *("Expected a path but", "Subclass types expect one of", "a class path (str)", "a dict with"),
)

_MANY = 15  # maximum number of keys listed in a message
_LONGEST = 120  # characters of a value


def is_from_restore(error: BaseException) -> bool:
    """Whether an error was raised while Lightning restored a checkpoint."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.endswith("checkpoint_connector.py") and "restore" in frame.name for frame in frames)


def is_from_callback(error: BaseException) -> bool:
    """Whether a Lightning callback raised the error, because its arguments name something that does not exist."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "/lightning/pytorch/callbacks/" in frames[-1].filename.replace(os.sep, "/")


@dataclass
class _Complaint:
    """The innermost complaint of the parser's message.

    Args:
        keys: from the outermost to the innermost.
        part: the class whose argument is meant, by import path.
        texts: alternatives: what each type of a union says.
        value: that was given, as text; None where the text does not say it.
    """

    depth: int
    keys: list[str]
    part: str | None
    texts: list[str] = field(default_factory=list)
    value: str | None = None
    listed: bool = False  # whether the type is a union; the parser's text then has the value after its alternatives


def format_parser_error(text: str) -> str:
    """Format the innermost complaint of jsonargparse's message, which nests one level per key and class.

    The message looks like 'Parser key "model": ... Problem with given class_path 'C': ... Option 'x' is not accepted'.
    """
    if match := re.match(r"unrecognized arguments: --(?:trainer\.)?(\S+)", text):
        part = "lightning.pytorch.Trainer" if "--trainer." in text else None
        return (
            f"{match[0].rpartition('--')[2]}: unknown key.{_suggest_keys(match[1], part) or ' See `mmrl fit --help`'}"
        )
    if match := re.match(r"argument --(\S+): expected one argument", text):
        return f"{match[1]} needs a value, as in --{match[1]} VALUE"
    best = _deepest(text)
    if best is None:
        return text.strip().splitlines()[0] if text.strip() else "the configuration cannot be read"
    where = ".".join(best.keys)
    if where == "seed_everything":
        return f"seed must be a whole number from 0 to {2**32 - 1}, got {best.value}"
    if match := re.match(r"Group '([^']+)' does not accept option '([^']+)'", best.texts[0]):
        group, part = ("trainer", "lightning.pytorch.Trainer") if match[1] == "trainer" else (match[1], best.part)
        return f"{'.'.join([*best.keys, group])}: unknown key {match[2]!r}.{_suggest_keys(match[2], part, group)}"
    if match := re.match(r"the following arguments are required: ([^\s,]+)", best.texts[0]):
        key = f"{where}.{match[1]}" if where else match[1]
        return f"{key} is null or missing, and {best.part or 'the run'} needs it.{_options(key)}"
    place = f"{where} ({best.part})" if best.part else where
    complaint = _format_complaint(best)
    return f"{place}: {complaint}" if place else complaint


def _deepest(text: str) -> _Complaint | None:
    best: _Complaint | None = None
    stack: list[tuple[int, str, str]] = []  # (indent, "key" or "class", name)
    lines = text.splitlines()
    for number, raw in enumerate(lines):
        line = raw.strip()
        text = line.removeprefix("- ")
        indent = len(raw) - len(raw.lstrip()) + len(line) - len(text)
        if not text or text.startswith(_NOISE):
            if text.startswith("Given value: ") and best is not None and best.listed and best.value is None:
                best.value = _short(text.removeprefix("Given value: "))
            continue
        stack = [entry for entry in stack if entry[0] < indent]
        if match := _KEY.match(text):
            stack.append((indent, "key", match["key"]))
            text = text[match.end() :].strip()
        elif match := _CLASS.match(text):
            stack.append((indent, "class", match["path"]))
            text = text[match.end() :].strip()
        if match := _CALLABLE.match(text):  # the class comes after what is wrong with it
            text = text[match.end() :]
            path = re.search(r"Got value: Namespace\(class_path='([^']+)'", "\n".join([text, *lines[number + 1 :]]))
            if path:
                stack.append((indent, "class", path[1]))
            if key := _KEY.match(text):
                stack.append((indent, "key", key["key"]))
                text = text[key.end() :].strip()
        text = re.sub(r"\. Got value: Namespace\(.*", "", text)
        if not text:
            continue
        keys = [name for _, kind, name in stack if kind == "key"]
        if best is None or len(stack) > best.depth:
            parts = [name for _, kind, name in stack if kind == "class"]
            best = _Complaint(len(stack), keys, parts[-1] if parts else None, listed=line.startswith("- "))
        if best.depth == len(stack) and best.keys == keys and best.value is None:
            best.texts.append(text)
    return best


def _format_complaint(complaint: _Complaint) -> str:
    text = complaint.texts[0]
    if match := re.match(r"Option '([^']+)' is not accepted", text):
        top = "" if complaint.keys or complaint.part else " The sections are trainer, model and data"
        return f"unknown key {match[1]!r}.{_suggest_keys(match[1], complaint.part)}{top}"
    if match := re.match(r"No module named '([^']+)'", text):
        new = find_new_name("modules", match[1])
        return f"{text}; it was renamed to {new}" if new else f"{text}; install it, or put its folder on PYTHONPATH"
    if match := re.match(r"(?:Not a valid|Import path does not correspond to a) subclass of (\w+)", text):
        got = f"; got {complaint.value}" if complaint.value else ""
        return f"must be a {match[1]}, named by its class in _target_ (class_path){got}"
    if match := re.match(r"Expected '([^']+)' to be a subclass of <class '([^']+)'>", text):
        return f"{match[1]} is no {match[2]}; name a class that is one"
    kinds = []
    for each in complaint.texts:
        if match := re.match(r"Expected a dot import path string: (.*)", each):
            kinds.append("an import path")
            complaint.value = complaint.value or _short(match[1])
        elif match := re.match(r"Expected an? (?:<class '([^']+)'>|(.+?))(?:\. Got value: (.*))?$", each):
            kind = (match[1] or match[2]).replace("typing.", "").replace("collections.abc.", "")
            kinds.append(kind.removeprefix("Literal[").removesuffix("]") if kind.startswith("Literal[") else kind)
            complaint.value = complaint.value or _short(match[3] or "")
    if not kinds:
        return _short(text, 400)
    return f"must be {' or '.join(kinds)}" + (f", got {complaint.value}" if complaint.value else "")


def _short(value: str, longest: int = _LONGEST) -> str:
    return value if len(value) <= longest else f"{value[:longest]} ..."


def _options(key: str) -> str:
    """List the options that give a missing part."""
    from mmrl.config.compose import groups

    name = key.rpartition(".")[2]
    return f" `mmrl list {name}` shows what it can be: {name}=NAME" if name in groups() else f" Set {key}"


def _suggest_keys(key: str, part: str | None, group: str | None = None) -> str:
    """Suggest similar arguments of the constructor, or its argument that contains the key."""
    if part is None:
        return ""
    if new := find_new_name("arguments", part, key.split(".")[0]):
        return f" It was renamed to {new}"
    module, _, name = part.rpartition(".")
    try:
        constructor = getattr(importlib.import_module(module), name)
        if group is not None and group != "trainer":
            inits = [base.__init__ for base in reversed(constructor.__mro__) if "__init__" in vars(base)]
            constructor = {name: hint for init in inits for name, hint in typing.get_type_hints(init).items()}[group]
    except (ImportError, AttributeError, KeyError, NameError):
        return ""
    names = list(constructor_parameters(constructor))
    near = difflib.get_close_matches(key.split(".")[0], names, n=1)
    if near and len(names) > _MANY:
        return f" Did you mean {near[0]!r}?"
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    text = f" It takes {', '.join(names[:_MANY]) or 'nothing'}{more}"
    return (f" Did you mean {near[0]!r}?" if near else "") + text


_LISTED = 20  # keys that a message names


def check_empty(given: Any, parsed: Any) -> None:
    """Refuse `key={}` where no part takes the key: the typed parser flattens mappings, so an empty one leaves no trace.

    Args:
        given: nested plain values, parts as {class_path, init_args}, before they were parsed.
        parsed: the same configuration as the typed parser understood it.

    Raises:
        ConfigError: with the key and those that stand beside it.
    """
    for key, keys in _find_vanished(given, parsed):
        parent, _, name = key.rpartition(".")
        listed = ", ".join(keys[:_LISTED]) + (", ..." if len(keys) > _LISTED else "")
        raise ConfigError(
            f"{parent or 'configuration'}: unknown key {name!r} (its value is {{}}). It takes {listed or 'no key'}"
        )


def _find_vanished(node: Any, parsed: Any, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the keys of empty mappings that were not parsed, with the keys that were."""
    if isinstance(node, Mapping) and "class_path" in node:
        part = _entries(parsed)
        if part.get("class_path", node["class_path"]) != node["class_path"]:
            return  # another argument chose another class
        node, parsed = node.get("init_args") or {}, part.get("init_args", parsed)
    if isinstance(node, Mapping):
        entries = _entries(parsed)
        for name, value in node.items():
            place = f"{key}.{name}" if key else str(name)
            # of a key that a part takes, {} is parsed to a dictionary or to the defaults of a class
            if isinstance(value, Mapping) and not value and entries.get(name, Namespace()) == Namespace():
                yield place, sorted(str(entry) for entry in entries if entry != name)
            elif name in entries:
                yield from _find_vanished(value, entries[name], place)
    elif isinstance(node, list) and isinstance(parsed, list):
        for number, (one, other) in enumerate(zip(node, parsed)):
            yield from _find_vanished(one, other, f"{key}.{number}")


def _entries(node: Any) -> Mapping[str, Any]:
    return vars(node) if isinstance(node, Namespace) else node if isinstance(node, Mapping) else {}
