"""Read and check the rows of a preference file in Hugging Face's formats.

Standard: {"prompt": text, "chosen": text, "rejected": text}. Conversational: each a list of {"role", "content"}, where
chosen and rejected are the assistant's turn. Without "prompt", chosen and rejected are whole conversations that begin
alike, and what they share is the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.strict_json import BrokenJSON, kind, parse_json, quote

_REMEDY = "write one complete object per line"

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Pair:
    """One prompt with its chosen and its rejected answer."""

    place: str  # "file:line", for messages
    messages: tuple[dict[str, Any], ...]
    chosen: str
    rejected: str


class BadPair(ValueError):
    """A row that cannot be trained on; the message names the row and the remedy."""


def pairs(file: Path, skip_bad: bool = False) -> tuple[tuple[Pair, ...], list[str]]:
    """All pairs of the file in order, and why rows were skipped; without `skip_bad` the first bad row raises."""
    pairs_read, skipped = [], []
    for place, record in _records(file):
        try:
            pairs_read.append(pair(record, place))
        except BadPair as error:
            if not skip_bad:
                raise
            skipped.append(str(error))
    if not pairs_read:
        raise ValueError(f"{file} has no pair to learn from" + (f"; the first row: {skipped[0]}" if skipped else ""))
    return tuple(pairs_read), skipped


def pair(record: dict[str, Any], place: str) -> Pair:
    """Parse one row."""
    missing = [name for name in ("chosen", "rejected") if record.get(name) in (None, "", [])]
    if missing:
        raise BadPair(
            f"{place}: {missing} missing or empty, the row has {quote(sorted(record))}; every row needs both answers"
        )
    chosen, rejected, prompt = record["chosen"], record["rejected"], record.get("prompt")
    if type(chosen) is not type(rejected):
        raise BadPair(f"{place}: chosen is a {_kind(chosen)} and rejected a {_kind(rejected)}; write both alike")
    if isinstance(chosen, str):
        messages, answers = _plain(prompt, place), (chosen, rejected)
    else:
        messages, answers = _conversations(prompt, chosen, rejected, place)
    if answers[0].strip() == answers[1].strip():
        raise BadPair(
            f"{place}: chosen and rejected are the same answer {answers[0][:40]!r}; nothing is preferred, so delete "
            "the row"
        )
    return Pair(place, messages, *answers)


def _plain(prompt: Any, place: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadPair(f"{place}: answers are texts, so 'prompt' must be one too, got {quote(prompt)}")
    return ({"role": "user", "content": prompt},)


def _conversations(
    prompt: Any, chosen: Any, rejected: Any, place: str
) -> tuple[tuple[dict[str, Any], ...], tuple[str, str]]:
    chosen, rejected = _messages(chosen, "chosen", place), _messages(rejected, "rejected", place)
    if prompt is None:
        shared = next((i for i, (a, b) in enumerate(zip(chosen, rejected)) if a != b), min(len(chosen), len(rejected)))
        if shared == 0:
            raise BadPair(
                f"{place}: there is no 'prompt', and chosen and rejected do not begin with the same message; "
                "add the prompt"
            )
        shared = min(shared, len(chosen) - 1, len(rejected) - 1)
        before, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    elif isinstance(prompt, str):
        before = _plain(prompt, place)
    else:
        before = _messages(prompt, "prompt", place)
    if before and before[-1]["role"] == "assistant":
        raise BadPair(f"{place}: the prompt ends with the assistant's turn; its last message must be another's")
    for name, turns in (("chosen", chosen), ("rejected", rejected)):
        if len(turns) != 1 or turns[0]["role"] != "assistant":
            roles = [turn["role"] for turn in turns]
            raise BadPair(f"{place}: after the prompt {name} must be one message of the assistant, got {roles}")
    return tuple(before), (chosen[0]["content"], rejected[0]["content"])


def _messages(value: Any, name: str, place: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list):
        raise BadPair(f"{place}: {name!r} must be a text or a list of messages, got a {_kind(value)}")
    for message in value:
        fits = isinstance(message, dict) and isinstance(message.get("content"), str) and message.get("role") in ROLES
        if not fits:
            raise BadPair(
                f"{place}: {name!r} holds {quote(message)}, which is no chat message: it needs 'content', a text, "
                f"and 'role', one of {ROLES}; other templates ('from' and 'value', say) have to be converted"
            )
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _kind(value: Any) -> str:
    return type(value).__name__


def _records(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each row of a JSON Lines or parquet file."""
    if file.suffix == ".parquet":
        yield from _parquet(file)
        return
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}); copy it again or change its rights") from error
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            record = parse_json(line, place, _REMEDY)
        except BrokenJSON as error:
            raise BadPair(str(error)) from error
        if not isinstance(record, dict):
            raise BadPair(f"{place}: the line is {kind(record)}, not an object with named columns; {_REMEDY}")
        yield place, record


def _parquet(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{file}: parquet needs pyarrow: pip install 'mmrl-lightning[data]'") from error
    try:
        rows = parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{file}: not a readable parquet file ({reason}); copy it again") from error
    for number, record in enumerate(rows, start=1):
        yield f"{file}:row {number}", record
