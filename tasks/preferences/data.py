"""Read and check the rows of a preference file in Hugging Face's formats.

Pairs: {"prompt": text, "chosen": text, "rejected": text}, or each a list of chat messages, where chosen and rejected
are the assistant's turn. Without "prompt", chosen and rejected are whole conversations that begin alike, and what they
share is the prompt. Single answers: {"prompt", "completion", "label"}, where label says whether the completion is
desirable; with "labels" (a number, a list or numbers by name) they are rated. {"prompt", "completions": [text],
"scores": [number]} are several answers, of which the best and the worst are a pair; with "labels" in place of "scores"
they are the steps of one answer, each right or wrong. A column "tools" holds the schemas
of the tools that the prompt shows; `tasks.preferences.columns` reads the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmrl.core.installation.optional_packages import import_optional
from mmrl.core.types import AssistantMessage
from mmrl.files.strict_json import BrokenJSON, kind, parse_json, quote
from tasks.chat import join_text, read_message, read_tools
from tasks.preferences.columns import read_candidates, read_columns
from tasks.preferences.steps import has_steps, read_steps

_REMEDY = "write one complete object per line"
_LABELS = {"true": True, "false": False, "1": True, "0": False}
"""Labels as texts, in lower case; JSON's true and false, 1 and 0 are read too."""


@dataclass(frozen=True)
class Pair:
    """One prompt with its chosen and its rejected answer, or with one answer of which the other is None."""

    place: str  # "file:line", for messages
    messages: tuple[dict[str, Any], ...]
    chosen: str | None
    rejected: str | None
    tools: tuple[dict[str, Any], ...] = ()
    columns: dict[str, Any] = field(default_factory=dict)  # margin, probability, labels, candidates, subset, id

    @property
    def answers(self) -> dict[str, str]:
        """The answers by their names: chosen and rejected, or one of them."""
        both = {"chosen": self.chosen, "rejected": self.rejected}
        return {name: answer for name, answer in both.items() if answer is not None}

    @property
    def paired(self) -> bool:
        return len(self.answers) == 2


class BadPair(ValueError):
    """A row that cannot be trained on; the message names the row and the remedy."""


def pairs(file: Path, skip_bad: bool = False) -> tuple[tuple[Pair, ...], list[str]]:
    """All pairs of the file in order, and why rows were skipped; without `skip_bad` the first bad row raises."""
    pairs_read, skipped = [], []
    for place, record in _records(file):
        try:
            pairs_read.append(pair(record, place, file.suffix == ".parquet"))
        except BadPair as error:
            if not skip_bad:
                raise
            skipped.append(str(error))
    if not pairs_read:
        raise ValueError(f"{file} has no pair to learn from" + (f"; the first row: {skipped[0]}" if skipped else ""))
    odd = next((row for row in pairs_read if row.paired != pairs_read[0].paired), None)
    if odd is not None:
        raise ValueError(
            f"{odd.place}: the row has {sorted(odd.answers)} and {pairs_read[0].place} has "
            f"{sorted(pairs_read[0].answers)}; a file has pairs, or single completions with labels, not both"
        )
    _refuse_gaps(pairs_read)
    return tuple(pairs_read), skipped


def _refuse_gaps(pairs_read: list[Pair]) -> None:
    """Refuse a number that some rows have and others lack, and labels of other names."""
    first = pairs_read[0]
    for name in ("margin", "probability", "labels", "steps"):
        for row in pairs_read:
            if (name in row.columns) != (name in first.columns):
                has, lacks = (row, first) if name in row.columns else (first, row)
                raise ValueError(
                    f"{lacks.place}: the row has no column {name!r}, and {has.place} has one; give it to all rows"
                )
    names = first.columns.get("labels", {}).keys()
    odd = next((row for row in pairs_read if row.columns.get("labels", {}).keys() != names), None)
    if odd is not None:
        raise ValueError(
            f"{odd.place}: the labels are {sorted(odd.columns['labels'])}, and those of {first.place} are "
            f"{sorted(names)}; write null for a label that is not known"
        )


def pair(record: dict[str, Any], place: str, filled: bool = False) -> Pair:
    """Parse one row.

    Args:
        record: columns by name.
        place: file and row, for messages.
        filled: whether entries that are missing stand as None inside of structures, as in parquet.
    """
    try:
        tools = read_tools(record.get("tools"), "tools", place, filled)
        if has_steps(record):
            steps = read_steps(record, place)
            answer = {"prompt": record.get("prompt"), "completion": "\n".join(steps["steps"]), "label": True}
            rest = {name: value for name, value in record.items() if name != "labels"}
            return replace(_single(answer, tools, place, filled), columns=read_columns(rest, place) | steps)
        columns = read_columns(record, place)
        if record.get("completions") is not None and record.get("scores") is not None:
            return _candidates(record, tools, columns, place, filled)
        if record.get("completion") is not None and record.get("chosen") is None:
            return replace(_single(record, tools, place, filled), columns=columns)
        return replace(_pair(record, tools, place, filled), columns=columns)
    except BadPair:
        raise
    except ValueError as error:
        raise BadPair(str(error)) from error


def _single(record: dict[str, Any], tools: Any, place: str, filled: bool) -> Pair:
    """Parse {"prompt", "completion", "label"}."""
    completion, prompt, label = record["completion"], record.get("prompt"), record.get("label")
    label = True if label is None and record.get("labels") is not None else label  # an answer that is rated
    value = _LABELS.get(str(label).strip().lower()) if isinstance(label, bool | int | str) else None
    if value is None:
        raise BadPair(
            f"{place}: column 'label' is {quote(label)}, it must say whether the completion is desirable: true or false"
        )
    if completion in ("", []):
        raise BadPair(f"{place}: column 'completion' is empty; fill it in or delete the row")
    if isinstance(completion, str) and isinstance(prompt, str):
        messages, answer = _plain(prompt, place), completion
    else:
        turns = _plain_turn(completion) if isinstance(completion, str) else completion
        before = _plain(prompt, place) if isinstance(prompt, str) else _messages(prompt, "prompt", place, filled)
        messages, answer = before, _answer(_messages(turns, "completion", place, filled), "completion", place)
        _refuse_answered(messages, place)
    if not answer.strip() and not isinstance(answer, AssistantMessage):
        raise BadPair(f"{place}: column 'completion' is empty; fill it in or delete the row")
    return Pair(place, messages, answer if value else None, None if value else answer, tools)


def _candidates(record: dict[str, Any], tools: Any, columns: dict[str, Any], place: str, filled: bool) -> Pair:
    """Parse {"prompt", "completions", "scores"}: the pair of the best and the worst answer, with all of them."""
    answers, scores = read_candidates(record, place)
    best, worst = answers[scores.index(max(scores))], answers[scores.index(min(scores))]
    pair = _pair({"prompt": record.get("prompt"), "chosen": best, "rejected": worst}, tools, place, filled)
    return replace(pair, columns=columns | {"completions": answers, "gold": scores})


def _plain_turn(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _pair(record: dict[str, Any], tools: Any, place: str, filled: bool) -> Pair:
    missing = [name for name in ("chosen", "rejected") if record.get(name) in (None, "", [])]
    if missing:
        raise BadPair(
            f"{place}: {missing} missing or empty, the row has {quote(sorted(record))}; every row needs both answers, "
            "or 'completion' and 'label' (recipe=kto)"
        )
    chosen, rejected, prompt = record["chosen"], record["rejected"], record.get("prompt")
    if type(chosen) is not type(rejected):
        raise BadPair(f"{place}: chosen is a {_kind(chosen)} and rejected a {_kind(rejected)}; write both alike")
    if isinstance(chosen, str):
        before = _messages(prompt, "prompt", place, filled) if isinstance(prompt, list) else _plain(prompt, place)
        _refuse_answered(before, place)
        messages, answers = before, (chosen, rejected)
    else:
        messages, answers = _conversations(prompt, chosen, rejected, place, filled)
    if _comparable(answers[0]) == _comparable(answers[1]):
        raise BadPair(
            f"{place}: chosen and rejected are the same answer {answers[0][:40]!r}; nothing is preferred, so delete "
            "the row"
        )
    return Pair(place, messages, *answers, tools)


def _comparable(answer: str) -> Any:
    return (answer.strip(), repr(getattr(answer, "fields", None)))


def _plain(prompt: Any, place: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadPair(f"{place}: answers are texts, so 'prompt' must be one too, got {quote(prompt)}")
    return ({"role": "user", "content": prompt},)


def _conversations(
    prompt: Any, chosen: Any, rejected: Any, place: str, filled: bool
) -> tuple[tuple[dict[str, Any], ...], tuple[str, str]]:
    chosen, rejected = (
        _messages(turns, name, place, filled) for name, turns in (("chosen", chosen), ("rejected", rejected))
    )
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
        before = _messages(prompt, "prompt", place, filled)
    _refuse_answered(before, place)
    return tuple(before), (_answer(chosen, "chosen", place), _answer(rejected, "rejected", place))


def _refuse_answered(before: tuple[dict[str, Any], ...], place: str) -> None:
    if before and before[-1]["role"] == "assistant":
        raise BadPair(f"{place}: the prompt ends with the assistant's turn; its last message must be another's")
    if not any(message["content"].strip() for message in before if message["role"] == "user"):
        raise BadPair(
            f"{place}: the prompt has no message of the user with a text; fill in the prompt or delete the row"
        )


def _answer(turns: tuple[dict[str, Any], ...], name: str, place: str) -> str:
    """The assistant's message after the prompt: its text, or all of it where it has more."""
    if len(turns) != 1 or turns[0]["role"] != "assistant":
        roles = [turn["role"] for turn in turns]
        raise BadPair(f"{place}: after the prompt {name} must be one message of the assistant, got {roles}")
    (turn,) = turns
    text = turn["content"]
    return text if turn.keys() == {"role", "content"} else AssistantMessage(text, turn)


def _messages(value: Any, name: str, place: str, filled: bool) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list):
        raise BadPair(f"{place}: {name!r} must be a text or a list of messages, got a {_kind(value)}")
    return tuple(_text_message(read_message(message, name, place, filled), name, place) for message in value)


def _text_message(message: Mapping[str, Any], name: str, place: str) -> dict[str, Any]:
    text = join_text(message["content"])
    if text is None:
        raise BadPair(
            f"{place}: {name!r} has a message with parts that are no text, which pairs do not have; leave it out"
        )
    return {**message, "content": text}


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
    pyarrow, parquet = (import_optional(name, str(file)) for name in ("pyarrow", "pyarrow.parquet"))
    try:
        rows = parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{file}: not a readable parquet file ({reason}); copy it again") from error
    for number, record in enumerate(rows, start=1):
        yield f"{file}:row {number}", record
