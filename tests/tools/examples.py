"""Tools that behave, and tools that do not."""

from __future__ import annotations

import time
from string import ascii_letters, digits
from typing import Any

from mmrl.core.types import Prompt
from mmrl.tools.base import Tool, ToolError
from mmrl.tools.call_parser import TagParser, ToolCall


class DivisionByZero(ToolError):
    """Nothing can be shared out among nobody."""


class Divide(Tool):
    """Whole division."""

    def run(self, left: int, right: int = 1) -> str:
        """
        Divide.

        Args:
            left: what is shared out.
            right: among how many.
        """
        if right == 0:
            raise DivisionByZero("right is 0")
        return str(left // right)


class Echo(Tool):
    """Says what it is told, after a while, in a way of its own."""

    def __init__(self, way: str = "plain", timeout_s: float = 5.0, after: float = 0.0):
        self.way, self.timeout_s, self.after = way, timeout_s, after

    def run(self, text: str) -> str:
        """
        Say it again.

        Args:
            text: what to say.
        """
        time.sleep(self.after)
        return said(self.way, text)


class Count(Tool):
    """How often it was called in this episode: it keeps something."""

    def __init__(self) -> None:
        self.calls, self.finished = 0, False

    def start(self, prompt: Prompt) -> Count:
        return Count()

    def run(self, text: str) -> str:
        """
        Count.

        Args:
            text: ignored.
        """
        self.calls += 1
        return str(self.calls)


def said(way: str, text: str) -> Any:
    """What each way of failing gives."""
    match way:
        case "raise":
            raise RuntimeError("the index is gone")
        case "exit":
            raise SystemExit(3)
        case "hang":
            time.sleep(60)
        case "long":
            return "x" * 10_000_000
        case "bytes":
            return b"\x00\x01"
    return text


STOPS = tuple(ascii_letters + digits)  # a random policy writes one of them soon


class Always(TagParser):
    """Every turn that ends is a call: a random policy writes none by itself."""

    def parse(self, text: str, tools: Any) -> list[ToolCall]:
        return [ToolCall("say", text)]
