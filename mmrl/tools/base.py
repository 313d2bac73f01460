"""Tools that a policy may call during an episode."""

from __future__ import annotations

import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from transformers.utils import get_json_schema

from mmrl.core.types import Prompt

KINDS: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


class ToolError(Exception):
    """Error of the caller: the policy reads the class name and the message, and the episode continues.

    A tool raises a subclass for each kind of caller error (`NotFound`, `DivisionByZero`). Every other exception is an
    error of the tool.
    """


class BadArguments(ToolError):
    """The arguments of a call do not fit the tool's schema."""


@dataclass(frozen=True)
class ToolOutput:
    """Result of a call that has images: uint8 [H, W, 3], which a vision-language policy reads before the text."""

    text: str = ""
    images: tuple[np.ndarray, ...] = ()


class Tool(ABC):
    """Base class of tools: `run` executes a call, the signature and docstring of `run` are its JSON schema.

    A tool with state per episode returns a fresh instance from `start`; others serve all episodes at once, from several
    threads.
    """

    timeout_s: float = 10.0  # of a call
    max_chars: int = 1000  # of a result; longer ones are truncated and marked
    ends_episode: bool = False  # whether a successful call is the final answer, and its result the episode's output

    @abstractmethod
    def run(self, **arguments: Any) -> str | ToolOutput:
        """Execute one call and return its result. Raises a ToolError if the call is wrong."""

    def start(self, prompt: Prompt) -> Tool:
        """Return the tool instance of one episode."""
        return self

    def meet(self, tools: Mapping[str, Tool]) -> None:
        """Note the episode's tools by name, this one among them, where it works on what another one has shown."""

    def notes(self) -> Mapping[str, Any]:
        """Return what the reward may read at the episode's end, as `episode.info["notes"]` under the call's name."""
        return {}

    def finish(self) -> None:
        """Release what the episode's instance holds."""

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Name, description and parameters as JSON schema, as chat templates of transformers take them."""
        schema = get_json_schema(self.call)
        schema["function"]["name"] = type(self).__name__.lower()
        return schema

    @property
    def call(self) -> Callable[..., Any]:
        """The function whose signature and docstring are the schema."""
        return self.run

    def schema_as(self, name: str) -> dict[str, Any]:
        """Return the schema under the name that calls use."""
        return {**self.schema, "function": {**self.schema["function"], "name": name}}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Return the types of the arguments by name, in order."""
        hints = typing.get_type_hints(self.call)
        names = inspect.signature(self.call).parameters
        unknown = [name for name in names if hints.get(name) not in KINDS]
        if unknown or not names:
            raise TypeError(
                f"tool {type(self).__name__}: `run` needs arguments annotated with one of "
                f"{[kind.__name__ for kind in KINDS]}; look at {unknown or 'its signature, which is empty'}"
            )
        return {name: hints[name] for name in names}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse missing, unknown or wrongly typed arguments of `run`."""
        parameters = self.parameters
        required = {n for n, p in inspect.signature(self.call).parameters.items() if p.default is p.empty}
        if missing := sorted(required - set(arguments)):
            raise BadArguments(f"{missing[0]} is missing")
        if unknown := sorted(set(arguments) - set(parameters)):
            raise BadArguments(f"{unknown[0]} is no argument; there are {', '.join(parameters)}")
        for name, value in arguments.items():
            kind = parameters[name]
            fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise BadArguments(f"{name} must be a {KINDS[kind]}")


class ImageSource(Tool):
    """Base class of tools whose results are images, such as a search over pages.

    `shown` is the last image of the episode at its full resolution, which other tools show parts of; None before.
    """

    shown: np.ndarray | None = None
