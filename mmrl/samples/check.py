"""Check samples that are read from a file, which anybody can have written or edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.files.strict_json import kind, need_object

NUMBER = "number or null"
_TURN = {
    "tokens": [str],
    "chosen": [int],
    "advantages?": [NUMBER],
    "logprobs?": [NUMBER],
    "ratios?": [NUMBER],
    "context?": str,
    "omitted?": {"after": int, "tokens": int},
}
_CALL = {"name": object, "arguments": object, "outcome": object, "result": object}
EPISODE = {
    "sample_index": int,
    "ended": str,
    "reward?": NUMBER,
    "scores?": {"*": NUMBER},
    "output?": str,
    "decisions?": int,
    "turns?": [_TURN],
    "calls?": [_CALL],
}
PROMPT = {"key": str, "messages": [{"role?": object, "content?": object}], "images?": [str]}
GROUP = {**PROMPT, "group": int, "group_size?": int, "episodes": [EPISODE]}
"""Form of a group: a type, [form of each item], or {name: form of the entry}; "name?" may be absent, "*" is any."""

_TYPES = {str: "a text", int: "a whole number", NUMBER: "a number or null"}


def check_form(value: Any, form: Any, place: str, remedy: str) -> None:
    """Refuse a value that has not the form.

    Raises:
        ValueError: names the place, what is there and the remedy.
    """
    if isinstance(form, dict):
        row = need_object(value, place, remedy)
        for name, part in form.items():
            entry = name.removesuffix("?")
            if name == "*":
                for key, each in row.items():
                    check_form(each, part, f"{place}: {key}", remedy)
            elif entry in row or entry == name:
                check_form(row.get(entry), part, f"{place}: {entry}", remedy)
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise ValueError(f"{place}: must be a list, is {kind(value)}; {remedy}")
        for each in value:
            check_form(each, form[0], place, remedy)
    elif form is not object and not _fits(value, form):
        raise ValueError(f"{place}: must be {_TYPES[form]}, is {kind(value)}; {remedy}")


def check_episode(row: Any, place: str, remedy: str) -> None:
    """Refuse an episode that is broken, or a turn that has not one number for each token."""
    check_form(row, EPISODE, place, remedy)
    for turn in row.get("turns", []):
        for name in ("chosen", "advantages", "logprobs", "ratios"):
            if turn["tokens"] and name in turn and len(turn[name]) != len(turn["tokens"]):
                raise ValueError(f"{place}: {len(turn[name])} {name} for {len(turn['tokens'])} tokens; {remedy}")


def check_group(row: Mapping[str, Any], place: str, remedy: str) -> None:
    """Refuse a group that is broken."""
    check_form(row, GROUP, place, remedy)
    for number, episode in enumerate(row["episodes"]):
        check_episode(episode, f"{place}: episode {number}", remedy)


def _fits(value: Any, form: Any) -> bool:
    if form == NUMBER:
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return isinstance(value, form) and not isinstance(value, bool)
