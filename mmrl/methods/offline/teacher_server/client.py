"""HTTP client of a server with OpenAI's completions endpoint: log-probs of prompts, several requests at once."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FIRST_WAIT = 0.25
"""Seconds before the first retry; each further wait is twice as long."""
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of servers that may answer the same request later."""


class TeacherFailure(RuntimeError):
    """The teacher's server is away, refuses a request, or answers in another form; the message says what to do."""


class CompletionsClient:
    """Sends requests to `{url}/completions` and counts them.

    Args:
        url: base address with or without /v1, such as http://localhost:8000/v1.
        model: name that the server gives the teacher; None asks the server, which must have one model alone.
        token: sent as a bearer token; None for none.
        connections: most requests at once.
        timeout_s: longest wait for an answer, seconds.
        retries: how often a request is repeated when the server is away or busy.
    """

    def __init__(
        self, url: str, model: str | None, token: str | None, connections: int, timeout_s: float, retries: int
    ):
        base = url.rstrip("/")
        self.base = base if base.endswith("/v1") else f"{base}/v1"
        self.url, self.model, self.token = url, model, token
        self.connections, self.timeout_s, self.retries = connections, timeout_s, retries
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("requests", "retried", "tokens", "seconds"), 0.0)

    def ask_all(self, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send requests, at most `connections` at once; returns their answers in order.

        Raises:
            TeacherFailure: one of them was refused, or had no answer after all retries.
        """
        if not bodies:
            return []
        if self.model is None:
            self.model = self._find_model()
        with ThreadPoolExecutor(min(self.connections, len(bodies))) as pool:
            futures = [pool.submit(self._ask, {"model": self.model, **body}) for body in bodies]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def take_counts(self) -> dict[str, float]:
        """Return the counts since the last call: requests, repeated ones, prompt tokens and seconds of waiting."""
        with self._lock:
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0.0)
        return counts

    def _find_model(self) -> str:
        names = [entry.get("id") for entry in self._send("/models", None).get("data") or ()]
        if len(names) != 1:
            raise TeacherFailure(
                f"teacher.url={self.url} serves the models {names}; choose one with teacher.model=NAME"
            )
        return names[0]

    def _ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        answer = self._send("/completions", body)
        usage = answer.get("usage") or {}
        self._count(requests=1, tokens=usage.get("prompt_tokens") or 0, seconds=time.perf_counter() - started)
        if not isinstance(answer.get("choices"), list) or len(answer["choices"]) != 1:
            raise TeacherFailure(f"teacher.url={self.url}: no completion in the answer {str(answer)[:200]}")
        return answer

    def _count(self, **amounts: float) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._counts[name] += amount

    def _send(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send one request, again while the server is away or busy."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        problem = ""
        for attempt in range(self.retries + 1):
            if attempt:
                self._count(retried=1)
                time.sleep(FIRST_WAIT * 2 ** (attempt - 1))
            try:
                request = urllib.request.Request(self.base + path, data, headers)
                with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
                    return json.loads(reply.read())
            except urllib.error.HTTPError as error:
                problem = f"answers {error.code}: {error.read().decode(errors='replace')[:300]}"
                if error.code not in BUSY:
                    break
            except (OSError, TimeoutError) as error:
                problem = f"does not answer: {getattr(error, 'reason', None) or error}"
            except ValueError as error:
                problem = f"answers no JSON: {error}"
                break
        raise TeacherFailure(f"teacher.url={self.url}: {self.base}{path} {problem}")
