"""Server of a reward model over HTTP: conversations to scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiohttp import web

from mmrl.core.errors import is_user_error
from mmrl.engines.endpoint.asynchronous import serve_app
from mmrl.files.foreign import read_foreign
from mmrl.policies.remote.token import is_token
from mmrl.rewards.models.learned import ClassifierReward

MAX_BODY = 16 * 2**20
"""Bytes of a request."""
ENDING_S = 3.0
"""Seconds that open requests get when the server ends."""
MAX_ROWS = 4096
"""Conversations of a request."""
_LARGEST_CONFIG = 2**24  # bytes


def find_classifier(folder: str) -> Path | None:
    """The folder of a sequence classifier: of a run, its exported policy, or the folder itself; None if it is none."""
    for place in (Path(folder) / "policy", Path(folder)):
        try:
            config = json.loads(read_foreign(place / "config.json", "save it again", _LARGEST_CONFIG))
        except (OSError, ValueError, RecursionError):
            continue
        names = config.get("architectures") if isinstance(config, dict) else None
        if names and str(names[0]).endswith("ForSequenceClassification"):
            return place
    return None


class ScoreServer:
    """Answer POST /score {"conversations": [[message, ...], ...], "tools": [[...], ...]} by {"scores": [number, ...]}.

    The conversations of a request are scored as `ClassifierReward` scores a group, one request after the other, so that
    no client's numbers depend on the others. GET /healthz answers 200.

    Args:
        model: of the scores.
        token: that a client must send as Authorization: Bearer TOKEN; None asks for none.
    """

    def __init__(self, model: ClassifierReward, token: str | None = None):
        self._model, self._token = model, token
        self._worker = ThreadPoolExecutor(1)  # one request at a time
        self.busy = False  # whether a call of the model is under way

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Args:
            host: address to listen at.
            port: 0 takes a free one.
            ready: called with the port once clients can connect.
        """
        app = web.Application(client_max_size=MAX_BODY)
        app.add_routes([web.post("/score", self._score), web.get("/healthz", self._health)])
        try:
            await serve_app(app, host, port, ready, stop, shutdown_timeout=ENDING_S)
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    def _call(self, conversations: list[Any], tools: list[Any]) -> Any:
        self.busy = True
        try:
            return self._model.score(conversations, tools)
        finally:
            self.busy = False

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def _score(self, request: web.Request) -> web.Response:
        if "Origin" in request.headers:  # a web page must not reach a server on the reader's machine
            return web.Response(status=403, text="requests of web pages are refused\n")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not is_token(token, self._token) or (self._token is not None and scheme.lower() != "bearer"):
            return web.Response(status=401, text="send the token: Authorization: Bearer TOKEN\n")
        try:
            conversations, tools = read_conversations(await request.text())
            loop = asyncio.get_running_loop()
            scores = await loop.run_in_executor(self._worker, self._call, conversations, tools)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        except Exception as error:  # a template that refuses a conversation, for example
            text = str(error) if is_user_error(error) else f"{type(error).__name__}: {error}"
            return web.Response(status=422, text=f"{text[:500]}\n")
        return web.json_response({"scores": scores})


def read_conversations(text: str) -> tuple[list[Any], list[Any]]:
    """Read the body of a request: conversations, and the tools of each.

    Raises:
        ValueError: it has another form; the message says which.
    """
    try:
        body = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the body is no JSON: {error}") from error
    conversations = body.get("conversations") if isinstance(body, dict) else None
    if not isinstance(conversations, list) or not 0 < len(conversations) <= MAX_ROWS:
        raise ValueError(f"conversations must be a list of 1 to {MAX_ROWS} lists of messages")
    for number, messages in enumerate(conversations):
        if not _is_conversation(messages):
            raise ValueError(f"conversation {number} must be a list of messages with role and content, both texts")
    tools = body.get("tools") or [[] for _ in conversations]
    if not isinstance(tools, list) or len(tools) != len(conversations) or not all(isinstance(t, list) for t in tools):
        raise ValueError("tools must be a list with a list of schemas for each conversation")
    return conversations, tools


def _is_conversation(messages: Any) -> bool:
    return isinstance(messages, list) and bool(messages) and all(map(_is_message, messages))


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    content = message.get("content")
    parts: Sequence[Any] = content if isinstance(content, list) else [{"text": content}]
    return all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts)
