"""McpServer: the tools of an MCP server, each as a tool of the rollout."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_positive
from mmrl.core.installation.optional_packages import import_optional
from mmrl.media.images import decode_image
from mmrl.tools.base import BadArguments, Tool, ToolError, ToolOutput
from mmrl.tools.mcp.connection import Connection, first_error, start_loop

KEY = "rollout.servers"
INVALID_PARAMS = -32602
"""JSON-RPC's code of arguments that a server does not take."""
_MARGIN_S = 5.0  # after which the rollout gives up on a call by itself
_KINDS = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class CallFailed(ToolError):
    """The tool ran and says that it failed; the policy reads its message."""


class McpServer:
    """Tools of a server that speaks the Model Context Protocol, by the official client.

    A server of `command` is a process of the run, started when the run is built and ended with it. A call that takes
    longer than `timeout_s`, a server that dies and an answer outside of the protocol are faults of the tool, which are
    counted; the next call has a server that is started again, and calls that wait on the old one may end.

    Args:
        command: starts a server that is spoken to over stdin and stdout, as "python server.py".
        url: instead, of a server over streamable HTTP, as http://127.0.0.1:8000/mcp.
        env: variables of the server's process beside PATH, HOME, LOGNAME, SHELL, TERM and USER.
        tools: names of the tools that the policy gets; None for all.
        timeout_s: limit of a call.
        start_s: limit of a start.
        max_chars: of a result; longer ones are cut.
    """

    def __init__(
        self,
        command: str | None = None,
        url: str | None = None,
        env: dict[str, str] | None = None,
        tools: list[str] | None = None,
        timeout_s: float = 10.0,
        start_s: float = 30.0,
        max_chars: int = 1000,
    ):
        self.place = f"{KEY}: command={command!r}" if url is None else f"{KEY}: url={url!r}"
        if (command is None) == (url is None):
            raise ValueError(f"{KEY}: a server has either command or url; set one of them")
        if command is not None and shutil.which(next(iter(shlex.split(command)), "")) is None:
            raise ValueError(f"{self.place}: there is no such program; give its path, or install it")
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError(f"{self.place} must begin with http:// or https://")
        check_positive(KEY, timeout_s=timeout_s, start_s=start_s, max_chars=max_chars)
        import_optional("mcp.client.client", KEY)
        self.names, self.timeout_s, self.start_s, self.max_chars = tools, timeout_s, start_s, max_chars
        self._address = command, url, dict(env or {})
        self._lock, self._calls = threading.Lock(), dict[Connection, int]()
        self._connection: Connection | None = None
        self._loop = start_loop()
        weakref.finalize(self, _close, self._calls, self._loop)  # at the end of the program too

    def list_tools(self) -> dict[str, Tool]:
        """Start the server and return its tools by name.

        Raises:
            ValueError: the server does not start, or lacks a tool.
        """
        try:
            listed = {each.name: McpTool(self, each) for each in self._connect().list_tools(self.start_s)}
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ValueError(
                f"{self.place}: no MCP server answered, in at most {self.start_s:g} s ({reason}); is it one, and does "
                "it run? A command started by hand shows what it prints"
            ) from error
        missing = [name for name in self.names or () if name not in listed]
        if missing or not listed:
            have = ", ".join(listed) or "none"
            raise ValueError(f"{self.place}: it has no tool {(missing or ['at all'])[0]}; there are: {have}")
        return {name: tool for name, tool in listed.items() if self.names is None or name in self.names}

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool; what is wrong with the server raises, and the next call has a fresh one."""
        with self._lock:
            connection = self._connect()
            self._calls[connection] += 1
        try:
            return connection.call(name, arguments, self.timeout_s)
        except TimeoutError as error:
            self._retire(connection)
            raise TimeoutError(f"the server has not answered within timeout_s={self.timeout_s:g} s") from error
        except Exception as error:
            cause: Any = first_error(error)
            number = getattr(cause, "code", None)
            if number == INVALID_PARAMS:
                raise BadArguments(str(cause.message)) from error
            self._retire(connection)
            raise
        finally:
            with self._lock:
                if connection in self._calls:  # otherwise the server was closed
                    self._calls[connection] -= 1
                self._stop_retired()

    def close(self) -> None:
        """End the server and wait for it; a later call starts it again."""
        with self._lock:
            connections, self._connection = list(self._calls), None
            self._calls.clear()
        for connection in connections:
            connection.close()

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._loop, *self._address, self.start_s)
            self._calls[self._connection] = 0
        return self._connection

    def _stop_retired(self) -> None:
        """End the servers that no call waits for, and forget those that have ended."""
        for connection, calls in list(self._calls.items()):
            if connection is self._connection or calls:
                continue
            if connection.is_over:
                del self._calls[connection]
            else:
                connection.stop()

    def _retire(self, connection: Connection) -> None:
        """Let the next call start another server."""
        with self._lock:
            if self._connection is connection:
                self._connection = None


class McpTool(Tool):
    """A tool of an MCP server under its own name, description and JSON schema.

    Args:
        server: that runs it.
        description: of the protocol.
    """

    def __init__(self, server: McpServer, description: Any):
        self.server, self.name = server, description.name
        self.timeout_s, self.max_chars = server.timeout_s + server.start_s + _MARGIN_S, server.max_chars
        self.arguments: Mapping[str, Any] = description.input_schema
        self.schema = {
            "type": "function",
            "function": {
                "name": self.name,
                "description": description.description or "",
                "parameters": dict(self.arguments),
            },
        }

    @property
    def parameters(self) -> dict[str, Any]:  # type: ignore[override]
        properties = self.arguments.get("properties") or {}
        return {name: _KINDS.get(str(each.get("type")), object) for name, each in properties.items()}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse missing and unknown arguments; the server looks at the others."""
        if missing := [name for name in self.arguments.get("required", ()) if name not in arguments]:
            raise BadArguments(f"{missing[0]} is missing")
        unknown = sorted(set(arguments) - set(self.parameters))
        if unknown and not self.arguments.get("additionalProperties"):
            raise BadArguments(f"{unknown[0]} is no argument; there are {', '.join(self.parameters)}")

    def run(self, **arguments: Any) -> ToolOutput:
        result = self.server.call(self.name, arguments)
        texts, images = read_content(result.content)
        text = "\n".join(texts)
        if result.is_error:
            raise CallFailed(text)
        if not texts and not images and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
        return ToolOutput(text, tuple(images))


def read_content(blocks: Sequence[Any]) -> tuple[list[str], list[np.ndarray]]:
    """Return the texts and images of a result.

    Raises:
        ValueError: a block is neither, or an image cannot be read.
    """
    texts, images = [], []
    for block in blocks:
        resource = getattr(block, "resource", None)
        if block.type == "image":
            images.append(decode_image(block.data))
        elif isinstance(text := getattr(resource or block, "text", None), str):
            texts.append(text)
        else:
            raise ValueError(f"a result of type {block.type!r} is not read; texts and images are")
    return texts, images


def _close(connections: dict[Connection, int], loop: asyncio.AbstractEventLoop) -> None:
    for connection in list(connections):
        connection.close()
    loop.call_soon_threadsafe(loop.stop)


def merge_tools(tools: Mapping[str, Tool], servers: Mapping[str, McpServer]) -> dict[str, Tool]:
    """Return the tools and those of the servers, by name.

    Raises:
        ValueError: two have one name, or a server does not start.
    """
    out = dict(tools)
    for name, server in servers.items():
        listed = server.list_tools()
        if same := sorted(out.keys() & listed.keys()):
            raise ValueError(f"{KEY}.{name}: there is another tool {same[0]!r}; choose by {KEY}.{name}.tools=[...]")
        out |= listed
    return out
