"""HTTP client of servers with OpenAI's interface: many requests at the same time, retries, limits."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp

from mmrl.core.errors import check_at_least, check_positive

MAX_BYTES = 4 * 2**20
"""Longest body of an answer that is read, if nothing else is said."""
_PASSING = {408, 409, 425, 429}  # and 500 to 599: worth another request
_MOST_WAIT_S = 30.0


@dataclass(frozen=True)
class NoAnswer:
    """Why a request has no answer, or a question no verdict; it is counted and never a number."""

    reason: str


class PassingError(Exception):
    """A failure that another request may not meet."""


class RefusedError(Exception):
    """A request that the server will never answer."""


class OpenAIClient:
    """Client of one server. Requests run at the same time.

    One that is late, or is answered by a status of a busy or failing server, is sent again after a wait that doubles
    each time; what is wrong with the request itself is not sent again.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        max_requests: under way at the same time.
        timeout_s: of one request.
        retries: further requests after one that failed.
        backoff_s: wait before the first of them; it doubles up to 30 seconds.
        key: that is sent as a bearer token; None for none.
        max_bytes: of an answer; a longer one is refused.
    """

    def __init__(
        self,
        url: str,
        max_requests: int,
        timeout_s: float,
        retries: int,
        backoff_s: float,
        key: str | None = None,
        max_bytes: int = MAX_BYTES,
    ):
        self.url, self.max_bytes = url.rstrip("/"), max_bytes
        self.max_requests, self.timeout_s, self.retries, self.backoff_s = max_requests, timeout_s, retries, backoff_s
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask_all(
        self,
        path: str,
        bodies: Sequence[Mapping[str, Any] | None],
        read: Callable[[int, Any], Any],
        counts: Counter[str],
    ) -> list[Any]:
        """Send requests and return what is read from their answers, in order, or a NoAnswer.

        Args:
            path: below the address, as /completions.
            bodies: JSON of POST requests; None is a GET.
            read: called with the number of a request and its answer; raises PassingError where another one may be
                answered better, RefusedError where none will.
            counts: `retries` is added to it.
        """

        async def ask(session: aiohttp.ClientSession, places: asyncio.Semaphore, number: int) -> Any:
            failure = NoAnswer("it was not sent")
            for attempt in range(self.retries + 1):
                if attempt:
                    counts["retries"] += 1
                    await asyncio.sleep(min(self.backoff_s * 2 ** (attempt - 1), _MOST_WAIT_S))
                try:
                    async with places:
                        return read(number, await self._send(session, path, bodies[number]))
                except RefusedError as error:
                    return NoAnswer(f"{self.url}{path} {error}")
                except PassingError as error:
                    failure = NoAnswer(f"{self.url}{path} {error}, {attempt + 1} times")
            return failure

        async def ask_each() -> list[Any]:
            places = asyncio.Semaphore(self.max_requests)
            timeout = aiohttp.ClientTimeout(total=self.timeout_s)
            connector = aiohttp.TCPConnector(limit=self.max_requests)
            async with aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector) as session:
                return await asyncio.gather(*(ask(session, places, number) for number in range(len(bodies))))

        return _run(ask_each()) if bodies else []

    async def _send(self, session: aiohttp.ClientSession, path: str, body: Mapping[str, Any] | None) -> Any:
        """The JSON of one answer."""
        method = "GET" if body is None else "POST"
        try:
            async with session.request(method, self.url + path, json=body, allow_redirects=False) as response:
                content = bytearray()
                async for chunk in response.content.iter_chunked(2**16):
                    content += chunk
                    if len(content) > self.max_bytes:
                        raise RefusedError(f"answered more than {self.max_bytes} bytes")
                status = response.status
        except TimeoutError as error:
            raise PassingError(f"did not answer within {self.timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PassingError(f"does not answer: {error or type(error).__name__}") from error
        text = content.decode("utf-8", "replace")
        if status in _PASSING or status >= 500:
            raise PassingError(f"answered {status}: {text[:200]}")
        if status != 200:
            raise RefusedError(f"answered {status}: {text[:200]}")
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:  # brackets nested thousands deep
            raise PassingError(f"answered no JSON that can be read: {text[:200]!r}") from error


class ServerConnection:
    """Base class of a judge or reward that asks a server by an `OpenAIClient`, with the options of the connection.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        max_requests: under way at the same time.
        timeout_s: of one request.
        retries: further requests after one that failed.
        backoff_s: wait before the first of them; it doubles up to 30 seconds.
        key_variable: environment variable with the key that is sent; nothing is sent where it is not set.
    """

    place: ClassVar[str] = "reward"  # key of the configuration, for messages

    def __init__(
        self,
        url: str,
        max_requests: int = 16,
        timeout_s: float = 60.0,
        retries: int = 5,
        backoff_s: float = 1.0,
        key_variable: str = "",
    ):
        super().__init__()
        check_at_least(0, self.place, retries=retries, backoff_s=backoff_s)
        check_at_least(1, self.place, max_requests=max_requests)
        check_positive(self.place, timeout_s=timeout_s)
        self.client = OpenAIClient(url, max_requests, timeout_s, retries, backoff_s, os.environ.get(key_variable))


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a thread of its own, because a notebook's thread has a loop already."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, name="mmrl requests")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
