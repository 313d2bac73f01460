"""Parse tool calls in a chat model's own syntax; its chat template shows the tools and formats the results."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.tools.base import Tool
from mmrl.tools.call_parser import NoCall, ToolCall, ToolCallParser, build_call, parse_json, parse_list


@dataclass(frozen=True)
class ChatParser(ToolCallParser):
    """Base class of parsers of a chat model's own call syntax. A turn ends with the model's end token.

    A turn may have several calls. What stands before `thought_end` is the model's reasoning and is not searched.

    Args:
        thought_end: end of the reasoning in a turn.
        description: of tools and call syntax for a system message, where the chat template does not show tools; None
            for the schemas and an example.
    """

    thought_end: str = "</think>"
    description: str | None = None

    def stop_strings(self, tools: Mapping[str, Tool]) -> tuple[str, ...]:
        return ()

    def parse(self, text: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
        return self.parse_calls(text.rpartition(self.thought_end)[2])

    def parse_turn(self, text: str, schemas: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
        """Parse the calls of a turn whose tools are known by their schemas alone; see `parse`."""
        return self.parse(text, {})

    @abstractmethod
    def parse_calls(self, text: str) -> list[ToolCall]:
        """Parse the calls of a turn without its reasoning; special tokens are in the text, the end token is not."""

    def describe_tools(self, schemas: Sequence[Mapping[str, Any]]) -> str:
        """Describe tools and call syntax for a system message, where the chat template does not show tools."""
        if self.description is not None:
            return self.description
        lines = "\n".join(json.dumps(schema) for schema in schemas)
        return f"You can call these functions:\n<tools>\n{lines}\n</tools>\nTo call one, write\n{self.example()}"

    @abstractmethod
    def example(self) -> str:
        """Return how a call is written."""

    @abstractmethod
    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as a model does, for chat templates that leave them out of an assistant's message."""

    def read_content(self, text: str) -> str:
        """Return what a turn with calls says before the first of them, its reasoning included."""
        reasoning, end, answer = text.rpartition(self.thought_end)
        return f"{reasoning}{end}{self.cut_calls(answer)}".rstrip()

    @abstractmethod
    def cut_calls(self, text: str) -> str:
        """Return the text before the first call of a turn that has one."""

    def format_result(self, text: str) -> str:
        return text

    def format_error(self, name: str, text: str) -> str:
        return f"{name}: {text}"


@dataclass(frozen=True)
class HermesParser(ChatParser):
    """Parser of Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

    def parse_calls(self, text: str) -> list[ToolCall]:
        parts = [part.split("</tool_call>") for part in text.split("<tool_call>")]
        bodies = [part[0] for part in parts[1:]]
        if len(parts[0]) > 1 or any(len(part) != 2 for part in parts[1:]):
            raise NoCall("write every call between <tool_call> and </tool_call>")
        return [build_call(parse_json(body)) for body in bodies]

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        bodies = (json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in calls)
        return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)

    def cut_calls(self, text: str) -> str:
        return text.partition("<tool_call>")[0]

    def example(self) -> str:
        return '<tool_call>\n{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}\n</tool_call>'


@dataclass(frozen=True)
class LlamaParser(ChatParser):
    """Parser of Llama 3.1 and later: a turn that is {"name": ..., "parameters": {...}}. Its template takes one call."""

    def parse_calls(self, text: str) -> list[ToolCall]:
        _, marked, body = text.rpartition("<|python_tag|>")
        if not marked and not body.lstrip().startswith("{"):
            return []
        call = {("arguments" if name == "parameters" else name): value for name, value in parse_json(body).items()}
        if not marked and not {"name", "arguments"} <= set(call):
            return []  # an answer in JSON
        return [build_call(call)]

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(
            json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False) for call in calls
        )

    def cut_calls(self, text: str) -> str:
        return text.rpartition("<|python_tag|>")[0]

    def example(self) -> str:
        return '{"name": "NAME", "parameters": {"ARGUMENT": VALUE}}'


@dataclass(frozen=True)
class MistralParser(ChatParser):
    """Parser of Mistral: [TOOL_CALLS] and a JSON list of calls, or [TOOL_CALLS]name[ARGS]{...} for each call."""

    def parse_calls(self, text: str) -> list[ToolCall]:
        _, *parts = text.split("[TOOL_CALLS]")
        calls = []
        for part in parts:
            name, args, body = part.partition("[ARGS]")
            if args:
                calls.append(ToolCall(re.split(r"\[CALL_ID\]", name)[0].strip(), parse_json(body)))
            else:
                calls += map(build_call, parse_list(part))
        return calls

    def write_calls(self, calls: Sequence[ToolCall]) -> str:
        bodies = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return f"[TOOL_CALLS]{json.dumps(bodies, ensure_ascii=False)}"

    def cut_calls(self, text: str) -> str:
        return text.partition("[TOOL_CALLS]")[0]

    def example(self) -> str:
        return '[TOOL_CALLS][{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}]'


def add_to_system(messages: Sequence[Mapping[str, Any]], text: str) -> tuple[Mapping[str, Any], ...]:
    """Append a text to the system message, which is added where there is none."""
    if messages and messages[0]["role"] == "system":
        return ({**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:])
    return ({"role": "system", "content": text}, *messages)
