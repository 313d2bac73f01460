"""Parse tool calls in a policy's completions, and format their results for its context."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmrl.tools.base import BadArguments, Tool, ToolError


class UnknownTool(ToolError):
    """The called tool does not exist."""


class NoCall(ToolError):
    """The turn contains neither a tool call nor the final answer."""


@dataclass(frozen=True)
class ToolCall:
    """Parsed tool call, with the arguments by name or the text between the tags."""

    name: str
    arguments: dict[str, Any] | str


class ToolCallParser(ABC):
    """Parser of a policy's tool calls and formatter of their results and errors."""

    @abstractmethod
    def stop_strings(self, tools: Mapping[str, Tool]) -> tuple[str, ...]:
        """Return the strings at which a turn ends."""

    @abstractmethod
    def parse(self, text: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
        """Parse the tool calls of a turn; none if the turn is the final answer.

        Raises:
            ToolError: the turn has a closing tag without an opening tag, or neither a call nor an answer.
        """

    @abstractmethod
    def format_result(self, text: str) -> str:
        """Format the result of a call as the policy reads it."""

    @abstractmethod
    def format_error(self, name: str, text: str) -> str:
        """Format a failed call as the policy reads it: the name of the outcome and its message."""


@dataclass(frozen=True)
class TagParser(ToolCallParser):
    """Parser of calls between an opening and a closing tag, as in <search>text</search>.

    A turn ends at the end of its first call, or of the final answer. With {name} in the opening tag the text of a call
    is a JSON object of the arguments, or the argument itself where the tool takes one string. Without {name} the text
    is {"name": ..., "arguments": {...}}.

    Args:
        open_tag: of a call.
        close_tag: of a call; tools may share it.
        result_template: for the result of a call, with {text}.
        error_template: for a failed call, with {name} and {text}.
        answer_end: the string that ends the final answer; None where a turn without a call is the answer.
    """

    open_tag: str = "<{name}>"
    close_tag: str = "</{name}>"
    result_template: str = "\n\n<information>{text}</information>\n\n"
    error_template: str = "\n\n<error>{name}: {text}</error>\n\n"
    answer_end: str | None = None

    def tags(self, tools: Mapping[str, Tool]) -> dict[str, tuple[str, str]]:
        """Return the closing and the opening tag of each tool's calls."""
        return {name: (self.close_tag.format(name=name), self.open_tag.format(name=name)) for name in tools}

    def stop_strings(self, tools: Mapping[str, Tool]) -> tuple[str, ...]:
        return (
            *dict.fromkeys(end for end, _ in self.tags(tools).values()),
            *([self.answer_end] if self.answer_end else ()),
        )

    def parse(self, text: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
        ends = sorted({close_tag for close_tag, _ in self.tags(tools).values() if close_tag in text}, key=text.index)
        if ends:
            before = text[: text.index(ends[0])]
            # the last opening tag before this closing tag
            starts = {
                n: before.rfind(open_tag)
                for n, (close_tag, open_tag) in self.tags(tools).items()
                if close_tag == ends[0]
            }
            name = max(starts, key=lambda n: starts[n])
            open_tag = self.tags(tools)[name][1]
            if starts[name] < 0:
                raise NoCall(f"write {open_tag} before {ends[0]}")
            body = before[starts[name] + len(open_tag) :]
            return [ToolCall(name, body) if "{name}" in self.open_tag else build_call(parse_json(body))]
        if self.answer_end is not None and self.answer_end not in text:
            raise NoCall(f"end with one of {' '.join(self.stop_strings(tools))}")
        return []

    def format_result(self, text: str) -> str:
        return self.result_template.format(text=text)

    def format_error(self, name: str, text: str) -> str:
        return self.error_template.format(name=name, text=text)


def bind_arguments(call: ToolCall, tool: Tool) -> dict[str, Any]:
    """Return the arguments of a call by name, checked against the tool's schema."""
    arguments = call.arguments
    if isinstance(arguments, str):
        kinds = tool.parameters
        if list(kinds.values()) == [str]:
            return {next(iter(kinds)): arguments.strip()}
        arguments = parse_json(arguments)
    tool.check(arguments)
    return arguments


def build_call(made: Any) -> ToolCall:
    """Build the call of {"name": ..., "arguments": {...}}. Raises BadArguments for other values."""
    if (
        not isinstance(made, dict)
        or not isinstance(made.get("name"), str)
        or not isinstance(made.get("arguments"), dict)
    ):
        raise BadArguments('write {"name": "...", "arguments": {...}}')
    return ToolCall(made["name"], made["arguments"])


def parse_json(body: str) -> dict[str, Any]:
    """Parse one JSON object. Raises BadArguments."""
    value = _decode(body)
    if not isinstance(value, dict):
        raise BadArguments("write one JSON object")
    return value


def parse_list(body: str) -> list[Any]:
    """Parse a JSON list; another value is a list of one. Raises BadArguments."""
    value = _decode(body)
    return value if isinstance(value, list) else [value]


def _decode(body: str) -> Any:
    try:
        return json.loads(body)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadArguments(f"not JSON: {getattr(error, 'msg', 'nested too deeply')}") from None
    except ValueError as error:  # a number of thousands of digits
        raise BadArguments(f"not JSON: {error}") from None
