"""Plain functions as tools."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from transformers.utils import get_json_schema

from mmrl.core.function_path import load_functions
from mmrl.tools.base import BadArguments, Tool, ToolOutput

KEY = "rollout.functions"


class FunctionTool(Tool):
    """A function as a tool: its signature and docstring are the schema.

    A text and a ToolOutput are returned as they are, other values as JSON. A ValueError of the function is an error of
    the caller, whose message the policy reads; every other exception is a fault of the tool.

    Args:
        function: or its path, as tools.py:multiply.
        ends_episode: whether a successful call is the final answer.
        timeout_s: time limit of a call.
        max_chars: of a result.
    """

    def __init__(
        self,
        function: str | Callable[..., Any],
        ends_episode: bool = False,
        timeout_s: float = 10.0,
        max_chars: int = 1000,
    ):
        self.function = load_functions([function], KEY)[0] if isinstance(function, str) else function
        self.name = getattr(self.function, "__name__", type(self.function).__name__)
        self.ends_episode, self.timeout_s, self.max_chars = ends_episode, timeout_s, max_chars
        if inspect.iscoroutinefunction(self.function):
            raise ValueError(f"{KEY}: {self.name} is async; give a plain function, calls run in threads")
        try:
            self.schema = get_json_schema(self.function)
        except Exception as error:  # transformers' own, for a docstring or a type hint
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{KEY}: {self.name} has no schema: {reason}. It needs type hints, and a docstring that describes each "
                'argument below "Args:"'
            ) from error

    @property
    def call(self) -> Callable[..., Any]:
        return self.function

    def run(self, **arguments: Any) -> str | ToolOutput:
        try:
            value = self.function(**arguments)
        except ValueError as error:
            raise BadArguments(str(error)) from error
        return value if isinstance(value, str | ToolOutput) else json.dumps(value, ensure_ascii=False)
