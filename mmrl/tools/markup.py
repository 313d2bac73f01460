"""How calls stand in what a policy writes, and how answers stand in what it reads."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
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


class Markup(ABC):
    """How a policy writes calls, and how it reads what became of them."""

    @abstractmethod
    def stops(self, tools: Mapping[str, Tool]) -> tuple[str, ...]:
        """The strings at which a turn ends."""

    @abstractmethod
    def call(self, text: str, tools: Mapping[str, Tool]) -> Call | None:
        """What a turn asks for; None where it is the answer.

        Raises:
            ToolError: it ends a call that it has not begun, or is neither a call nor an answer.
        """

    @abstractmethod
    def reply(self, text: str) -> str:
        """What the policy reads of an answer."""

    @abstractmethod
    def refusal(self, name: str, text: str) -> str:
        """What it reads when a call cannot be served: the outcome's name and why."""


@dataclass(frozen=True)
class Tags(Markup):
    """A turn ends at the end of its first call, or of the final answer.

    With {name} in the opening mark a call is <search>text</search>, and its text a JSON object of the arguments unless
    the tool takes one string. Without it the text is {"name": ..., "arguments": {...}}.

    Args:
        opening: of a call.
        closing: of a call; tools may share it.
        told: what the policy reads of an answer, with {text}.
        failed: what it reads when a call cannot be served, with {name} and {text}.
        answer: the string that ends the final answer; None where a turn without a call is the answer.
    """

    opening: str = "<{name}>"
    closing: str = "</{name}>"
    told: str = "\n\n<information>{text}</information>\n\n"
    failed: str = "\n\n<error>{name}: {text}</error>\n\n"
    answer: str | None = None

    def marks(self, tools: Mapping[str, Tool]) -> dict[str, tuple[str, str]]:
        """What closes and what opens a call, by the tool's name."""
        return {name: (self.closing.format(name=name), self.opening.format(name=name)) for name in tools}

    def stops(self, tools: Mapping[str, Tool]) -> tuple[str, ...]:
        return (*dict.fromkeys(end for end, _ in self.marks(tools).values()), *([self.answer] if self.answer else ()))

    def call(self, text: str, tools: Mapping[str, Tool]) -> Call | None:
        ends = sorted({closing for closing, _ in self.marks(tools).values() if closing in text}, key=text.index)
        if ends:
            before = text[: text.index(ends[0])]
            # the last mark that opens a call with this end
            begun = {
                n: before.rfind(opening) for n, (closing, opening) in self.marks(tools).items() if closing == ends[0]
            }
            name = max(begun, key=lambda n: begun[n])
            opening = self.marks(tools)[name][1]
            if begun[name] < 0:
                raise NoCall(f"write {opening} before {ends[0]}")
            body = before[begun[name] + len(opening) :]
            return Call(name, body) if "{name}" in self.opening else _named(body)
        if self.answer is not None and self.answer not in text:
            raise NoCall(f"end with one of {' '.join(self.stops(tools))}")
        return None

    def reply(self, text: str) -> str:
        return self.told.format(text=text)

    def refusal(self, name: str, text: str) -> str:
        return self.failed.format(name=name, text=text)


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
