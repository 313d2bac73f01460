"""HTTP server of the endpoint: /v1/models and /v1/chat/completions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from mmrl.engines.endpoint.asynchronous import serve_app
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.reply import ChatReply
from mmrl.engines.endpoint.request import ChatRequest, read_request

log = logging.getLogger(__name__)

MAX_BODY = 16 * 2**20
"""Bytes of a request."""
_CLOSE_S = 2.0
"""Seconds that connections get to end when the server does."""

Caller = Any
"""Who asks: what `admit` returned for the key of a request."""
_CALLER = web.RequestKey("caller", object) if hasattr(web, "RequestKey") else "caller"


class ChatServer:
    """Answer requests for chat completions in OpenAI's form.

    GET /v1/models, POST /v1/chat/completions with `stream` as server-sent events, and GET /healthz, which answers 200.
    A request that cannot be read is answered by 400 and the name of the field, an error of the program by 500.

    Args:
        model: the name that requests must give.
        admit: returns who asks from the key of a request ("" where there is none), or None to refuse it.
        clean: breaks special tokens in the contents of messages.
        answer: returns the reply to a request.
        refuse: called with the caller and the error of each refused request.
    """

    def __init__(
        self,
        model: str,
        admit: Callable[[str], Caller | None],
        clean: Callable[[str], str],
        answer: Callable[[Caller, ChatRequest], Awaitable[ChatReply]],
        refuse: Callable[[Caller, RequestError], None] = lambda caller, error: None,
    ):
        self.model, self._admit, self._clean, self._answer, self._refuse = model, admit, clean, answer, refuse

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Args:
            host: address to listen at.
            port: 0 takes a free one.
            ready: called with the port once clients can connect.
        """
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._check])
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{name:.+}", self._model),
                web.post("/v1/chat/completions", self._complete),
            ]
        )
        # the answer of a client that is gone is not waited for
        await serve_app(app, host, port, ready, stop, handler_cancellation=True, shutdown_timeout=_CLOSE_S)

    @web.middleware
    async def _check(self, request: web.Request, handler: Callable[..., Awaitable[Any]]) -> web.StreamResponse:
        """Refuse web pages and unknown keys, and answer errors in OpenAI's form."""
        try:
            if request.path == "/healthz":
                return await handler(request)
            if "Origin" in request.headers:  # a web page must not reach a server on the reader's machine
                raise RequestError("requests of web pages are refused", None, "origin", 403)
            scheme, _, key = request.headers.get("Authorization", "").partition(" ")
            request[_CALLER] = self._admit(key.strip() if scheme.lower() == "bearer" else "")
            if request[_CALLER] is None:
                raise RequestError("send a valid key: Authorization: Bearer KEY", None, "invalid_api_key", 401)
            return await handler(request)
        except RequestError as error:
            if request.get(_CALLER) is not None:
                self._refuse(request[_CALLER], error)
            return web.json_response(error.body(), status=error.status)
        except web.HTTPException as error:  # an unknown path, a method, a body that is too large
            text = f"{request.method} {request.path}: {error.reason}; /v1/chat/completions and /v1/models are served"
            return web.json_response(RequestError(text, None, "unknown_url").body(), status=error.status)
        except Exception as error:
            log.exception("the endpoint failed to answer")
            text = f"{type(error).__name__}: {error}"[:500]
            return web.json_response(RequestError(text, None, "internal_error", 500).body(), status=500)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    def _describe(self) -> dict[str, Any]:
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "mmrl"}

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._describe()]})

    async def _model(self, request: web.Request) -> web.Response:
        self._check_model(request.match_info["name"])
        return web.json_response(self._describe())

    def _check_model(self, name: str) -> None:
        if name != self.model:
            raise RequestError(
                f"there is no model {name!r:.100}; this endpoint serves {self.model!r}", "model", "model_not_found", 404
            )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        chat = read_request(await request.read(), self._clean)
        self._check_model(chat.model)
        reply = await self._answer(request[_CALLER], chat)
        if not chat.stream:
            return web.json_response(reply.body(chat))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        for event in reply.events(chat):
            await response.write(event.encode())
        await response.write_eof()
        return response
