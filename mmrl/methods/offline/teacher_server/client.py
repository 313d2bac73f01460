"""Requests to a server with OpenAI's completions endpoint for the log-probs of prompts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.rewards.judges.client import NoAnswer, OpenAIClient, RefusedError

FIRST_WAIT = 0.25
"""Seconds before the first retry; each further wait is twice as long."""
_LARGEST = 2**30
"""Bytes of an answer: log-probs of a whole vocabulary at every token are long."""


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
        base = base if base.endswith("/v1") else f"{base}/v1"
        self.url, self.model = url, model
        self._client = OpenAIClient(base, connections, timeout_s, retries, FIRST_WAIT, token, _LARGEST)
        self._counts: Counter[str] = Counter()

    def ask_all(self, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send requests, at most `connections` at once; returns their answers in order.

        Raises:
            TeacherFailure: one of them was refused, or had no answer after all retries.
        """
        if not bodies:
            return []
        if self.model is None:
            self.model = self._find_model()
        started, named = time.perf_counter(), [{"model": self.model, **body} for body in bodies]
        answers = self._send("/completions", named)
        tokens = sum((answer.get("usage") or {}).get("prompt_tokens") or 0 for answer in answers)
        self._counts.update(requests=len(bodies), tokens=tokens)
        self._counts["seconds"] += time.perf_counter() - started  # type: ignore[assignment]
        return answers

    def take_counts(self) -> dict[str, float]:
        """Return the counts since the last call: requests, repeated ones, prompt tokens and seconds of waiting."""
        counts, self._counts = self._counts, Counter()
        names = {"requests": "requests", "retried": "retries", "tokens": "tokens", "seconds": "seconds"}
        return {name: float(counts[key]) for name, key in names.items()}

    def _find_model(self) -> str:
        names = [entry.get("id") for entry in self._send("/models", [None])[0].get("data") or ()]
        if len(names) != 1:
            raise TeacherFailure(
                f"teacher.url={self.url} serves the models {names}; choose one with teacher.model=NAME"
            )
        return names[0]

    def _send(self, path: str, bodies: Sequence[Mapping[str, Any] | None]) -> list[dict[str, Any]]:
        answers = self._client.ask_all(path, bodies, lambda _, answer: _read(answer, path), self._counts)
        if failure := next((answer for answer in answers if isinstance(answer, NoAnswer)), None):
            raise TeacherFailure(f"teacher.url={self.url}: {failure.reason}")
        return answers


def _read(answer: Any, path: str) -> dict[str, Any]:
    """Refuse an answer of another form; raises RefusedError."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or (
        path == "/completions" and not (isinstance(choices, list) and len(choices) == 1)
    ):
        raise RefusedError(f"gave no completion, but {str(answer)[:200]}")
    return answer
