"""How calls stand in what a policy writes, and how answers stand in what it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmrl.tools.base import BadArguments, Tool, ToolError


class UnknownTool(ToolError):
    """A call by a name that no tool has."""


class NoCall(ToolError):
    """A turn that neither calls a tool nor gives the answer."""


@dataclass(frozen=True)
class Call:
    """What a turn asks for: the arguments by name, or the text between the marks."""

    name: str
    given: dict[str, Any] | str


@dataclass(frozen=True)
class Markup:
    """A turn ends at the end of its first call, or of the final answer.

    With {name} in the marks a call is <search>text</search>, and its text a JSON object of the arguments unless the
    tool takes one string. Without {name} its text is {"name": ..., "arguments": {...}}.

    Args:
        opening: of a call.
        closing: of a call.
        told: what the policy reads of an answer, with {text}.
        failed: what it reads when a call cannot be served, with {name} and {text}.
        answer: the string that ends the final answer; None where a turn without a call is the answer.
    """

    opening: str = "<{name}>"
    closing: str = "</{name}>"
    told: str = "\n\n<information>{text}</information>\n\n"
    failed: str = "\n\n<error>{name}: {text}</error>\n\n"
    answer: str | None = None

    def marks(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        """What opens a call, by what closes it."""
        return {self.closing.format(name=name): self.opening.format(name=name) for name in tools}

    def stops(self, tools: Mapping[str, Tool]) -> tuple[str, ...]:
        """The strings at which a turn ends."""
        return (*self.marks(tools), *([self.answer] if self.answer else ()))

    def call(self, text: str, tools: Mapping[str, Tool]) -> Call | None:
        """What a turn asks for; None where it is the answer.

        Raises:
            ToolError: it ends a call that it has not begun, or is neither a call nor an answer.
        """
        marks = self.marks(tools)
        closing = min((c for c in marks if c in text), key=text.index, default=None)
        if closing is not None:
            _, opened, body = text[: text.index(closing)].rpartition(marks[closing])
            if not opened:
                raise NoCall(f"write {marks[closing]} before {closing}")
            names = [name for name in tools if self.closing.format(name=name) == closing]
            return Call(names[0], body) if "{name}" in self.closing else _named(body)
        if self.answer is not None and self.answer not in text:
            raise NoCall(f"end with one of {' '.join(self.stops(tools))}")
        return None


def arguments(call: Call, tool: Tool) -> dict[str, Any]:
    """The arguments of a call, by name."""
    given = call.given
    if isinstance(given, str):
        kinds = tool.parameters
        if list(kinds.values()) == [str]:
            return {next(iter(kinds)): given.strip()}
        given = _json(given)
    tool.check(given)
    return given


def _named(body: str) -> Call:
    made = _json(body)
    if not isinstance(made.get("name"), str) or not isinstance(made.get("arguments"), dict):
        raise BadArguments('write {"name": "...", "arguments": {...}}')
    return Call(made["name"], made["arguments"])


def _json(body: str) -> dict[str, Any]:
    try:
        made = json.loads(body)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadArguments(f"not JSON: {getattr(error, 'msg', 'nested too deeply')}") from None
    if not isinstance(made, dict):
        raise BadArguments("write one JSON object")
    return made
