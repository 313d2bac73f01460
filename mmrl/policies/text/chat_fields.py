"""Whether a chat template reads what messages have beside role and content, and the tools of a prompt.

A template silently leaves out what it does not name. Each field is tried once: a short conversation is written with it
and without it, and a template that writes both alike does not read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Render = Callable[[list[dict[str, Any]], Any, bool], str]
"""The chat template: messages, tools, and whether the assistant's next turn is opened -> text."""
_TIED = (("tool", "tool_call_id"), ("tool", "name"))
"""They tie a result to its call; templates that write results in the order of the calls need neither."""
_CALL = {"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {}}}
_ASK = {"role": "user", "content": "?"}
_BEFORE = {"tool": [_ASK, {"role": "assistant", "content": "", "tool_calls": [_CALL]}], "assistant": [_ASK]}


class ChatFields:
    """Fields of messages that a chat template reads, found out when they are first needed.

    Args:
        render: the chat template.
        place: name of the checkpoint, for messages.
    """

    def __init__(self, render: Render, place: str):
        self.render, self.place = render, place
        self._read: dict[tuple[str, str], bool] = {}

    def refuse_unread(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> None:
        """Raise ValueError for a field of a message, or for tools, that the template leaves out."""
        for role, key, value in list_fields(messages, tools):
            if (role, key) not in self._read:
                self._read[role, key] = self._changes(role, key, value)
            if not self._read[role, key]:
                what = "the tools of the prompt" if key == "tools" else f"{key!r} of a message of role {role!r}"
                raise ValueError(
                    f"{self.place}: the chat template does not write {what}, so the policy would not read it; write it "
                    "into a content, leave it out of the rows, or choose a model whose template shows it"
                )

    def _changes(self, role: str, key: str, value: Any) -> bool:
        """Whether a short conversation is written in another way with the field."""
        try:
            if key == "tools":
                return self.render([_ASK], value, True) != self.render([_ASK], None, True)
            message = {"role": role, "content": "a"}
            texts = [
                self.render([*_BEFORE.get(role, ()), each, *([_ASK] if role == "system" else ())], None, False)
                for each in (message, {**message, key: value})
            ]
        except Exception:  # of a template that refuses such a conversation; the prompt itself will tell
            return True
        return texts[0] != texts[1]


def list_fields(messages: Sequence[Mapping[str, Any]], tools: Any) -> Iterator[tuple[str, str, Any]]:
    """Iterate over (role, key, value) of what a template has to read beside role and content."""
    if tools:
        yield "", "tools", tools
    for message in messages:
        for key, value in message.items():
            role = message["role"]
            if key not in ("role", "content") and value and (role, key) not in _TIED:
                yield role, key, value


def refuse_fields(messages: Sequence[Mapping[str, Any]], tools: Any, place: str) -> None:
    """Raise ValueError for what messages have beside role and content where there is no chat template to write it."""
    for role, key, _ in list_fields(messages, tools):
        what = "tools" if key == "tools" else f"{key!r} of a message of role {role!r}"
        raise ValueError(
            f"{place} has no chat template, so {what} would not be written; write it into a content, leave it out of "
            "the rows, or choose an instruction-tuned checkpoint"
        )
