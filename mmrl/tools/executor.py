"""Execute tool calls in threads, with a timeout and a limit on the result's size."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mmrl.tools.base import Tool, ToolError, ToolOutput
from mmrl.tools.call_parser import ToolCall, UnknownTool, bind_arguments
from mmrl.tools.threads import PendingCall, ThreadExecutor

log = logging.getLogger(__name__)

FAULTS = frozenset({"raised", "timed_out", "not_text", "not_image"})
"""Outcomes that are errors of the tool and not of the caller."""
TRUNCATED = " [cut]"


@dataclass(frozen=True)
class ToolResult:
    """Outcome of a tool call, its text and its images.

    `outcome` is "ok", "truncated" (longer than the tool's `max_chars`), the name of a ToolError (error of the caller),
    or one of FAULTS: "raised" (any other exception), "timed_out", "not_text" (no str), "not_image" (an image that is
    not uint8 [H, W, 3]). The text of a result holds printable characters, newlines and tabs alone.
    """

    outcome: str
    text: str
    images: tuple[np.ndarray, ...] = ()

    @property
    def fault(self) -> bool:
        return self.outcome in FAULTS

    @property
    def succeeded(self) -> bool:
        return self.outcome in ("ok", "truncated")


class ToolExecutor:
    """Thread pool for tool calls. A call past its timeout is abandoned and its thread is replaced.

    Args:
        max_timeouts: number of abandoned calls of one tool at which the run stops with an error.
        threads: number of concurrent calls.
    """

    def __init__(self, max_timeouts: int = 64, threads: int = 16):
        self._threads = ThreadExecutor("tool", max_timeouts, threads)
        self.wait = self._threads.wait
        self._warned: set[str] = set()

    def submit(self, call: ToolCall, tools: Mapping[str, Tool]) -> PendingCall:
        """Start a call; an invalid call has its error as result at once."""
        tool = tools.get(call.name)
        if tool is None:
            return reject(UnknownTool(f"there are {', '.join(tools)}"))
        try:
            arguments = bind_arguments(call, tool)
        except ToolError as error:
            return reject(error, call.name)
        return self._threads.start(call.name, partial(_execute, tool, arguments), tool.timeout_s)

    def result(self, pending: PendingCall) -> ToolResult:
        """Return the result of a call that is done."""
        result = self._threads.finish(pending)
        if isinstance(result, TimeoutError):
            result = ToolResult("timed_out", str(result))
        if result.fault:
            self._warn(pending.name, result)
        return result

    def _warn(self, tool: str, result: ToolResult) -> None:
        key = f"{tool}/{result.outcome}"
        if key not in self._warned:
            self._warned.add(key)
            log.warning("tool %r: %s (%s); counted as tools/%s", tool, result.outcome, result.text[:200], key)


def _execute(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    try:
        return _check_output(tool.run(**arguments), tool.max_chars)
    except ToolError as error:
        return ToolResult(type(error).__name__, str(error))
    except BaseException as error:  # SystemExit in a tool ends only the call
        return ToolResult("raised", f"{type(error).__name__}: {error}")


def reject(error: ToolError, tool: str = "none") -> PendingCall:
    """Return a call that is rejected before it is executed."""
    return PendingCall(tool, 0.0, result=ToolResult(type(error).__name__, str(error)))


def _check_output(value: Any, max_chars: int) -> ToolResult:
    output = value if isinstance(value, ToolOutput) else ToolOutput(value)
    for image in output.images:
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape[2:] != (3,) or not image.size:
            shape = getattr(image, "shape", "no array")
            return ToolResult("not_image", f"it gave an image of {getattr(image, 'dtype', type(image))} {shape}")
    return replace(_check_text(output.text, max_chars), images=tuple(output.images))


def _check_text(value: Any, max_chars: int) -> ToolResult:
    if not isinstance(value, str):
        return ToolResult("not_text", f"it gave {type(value).__name__}, not text")
    # at most two characters become one, so the first 2 * max_chars + 2 tell whether the whole text is too long
    text = _clean(value[: 2 * max_chars + 2])
    return ToolResult("ok", text) if len(text) <= max_chars else ToolResult("truncated", text[:max_chars] + TRUNCATED)


def _clean(text: str) -> str:
    """Replace CR LF and CR by a newline, other space separators by a space, other unprintable characters by U+FFFD.

    Pages that a tool reads and programs that it runs for a policy hold such characters: they are no fault of the tool.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else _replace(c) for c in lines)


def _replace(character: str) -> str:
    return " " if unicodedata.category(character) == "Zs" else "\ufffd"
