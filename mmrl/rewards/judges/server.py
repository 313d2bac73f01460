"""A judge behind a server with OpenAI's interface: vLLM, SGLang, llama.cpp, Ollama, or a hosted model."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import aiohttp
from PIL import Image

from mmrl.core.errors import check_at_least, check_positive
from mmrl.rewards.judges.base import Failure, Judge, read_verdict
from mmrl.rewards.judges.cache import ReplyCache
from mmrl.rewards.judges.questions import Question, Reply

MAX_BYTES = 4 * 2**20
"""Longest body of an answer that is read."""
TOP_LOGPROBS = 20
"""Most likely first tokens that are asked for; the largest number of OpenAI's interface."""
_PASSING = {408, 409, 425, 429}  # and 500 to 599: worth another request
_MOST_WAIT_S = 30.0


class _Passing(Exception):
    """A failure that another request may not meet."""


class _Refused(Exception):
    """A request that the server will never answer."""


class ServerJudge(Judge):
    """Judge behind POST URL/chat/completions of OpenAI's interface.

    Requests run at the same time. One that is late, or is answered by a status of a busy or failing server, is sent
    again after a wait that doubles each time; what is wrong with the request itself is not sent again.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        temperature: of the judge's sampling.
        max_tokens: of a reply.
        max_requests: under way at the same time.
        timeout_s: of one request.
        retries: further requests after one that failed.
        backoff_s: wait before the first of them; it doubles up to 30 seconds.
        key_variable: environment variable with the key that is sent; nothing is sent where it is not set.
        cache: SQLite file with replies by model, question and sampling; None keeps none.
        price: of a million tokens of the prompt and of the reply, for `rollout/judge_cost`.
        options: further fields of the request, as {top_p: 0.9}.
    """

    sees_images = True

    def __init__(
        self,
        url: str | None = None,
        model: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        max_requests: int = 16,
        timeout_s: float = 60.0,
        retries: int = 5,
        backoff_s: float = 1.0,
        key_variable: str = "OPENAI_API_KEY",
        cache: str | None = None,
        price: tuple[float, float] = (0.0, 0.0),
        options: dict[str, Any] | None = None,
    ):
        super().__init__()
        if not url or not model or not url.startswith(("http://", "https://")):
            raise ValueError(
                "the judge needs reward.judge.url=http://HOST:PORT/v1 and reward.judge.model=NAME, got "
                f"url={url!r} and model={model!r}"
            )
        check_at_least(0, "reward.judge", temperature=temperature, retries=retries, backoff_s=backoff_s)
        check_at_least(1, "reward.judge", max_tokens=max_tokens, max_requests=max_requests)
        check_positive("reward.judge", timeout_s=timeout_s)
        self.url = url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self.model, self.temperature, self.max_tokens = model, temperature, max_tokens
        self.max_requests, self.timeout_s, self.retries, self.backoff_s = max_requests, timeout_s, retries, backoff_s
        self.key_variable, self.price, self.options = key_variable, tuple(price), dict(options or {})
        self.cache = None if cache is None else ReplyCache(cache)

    def reply(self, questions: Sequence[Question]) -> list[Reply | Failure]:
        return _run(self._reply_all(questions))

    async def _reply_all(self, questions: Sequence[Question]) -> list[Reply | Failure]:
        places = asyncio.Semaphore(self.max_requests)
        key = os.environ.get(self.key_variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=self.timeout_s)
        connector = aiohttp.TCPConnector(limit=self.max_requests)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            return await asyncio.gather(*(self._reply_once(question, session, places) for question in questions))

    async def _reply_once(
        self, question: Question, session: aiohttp.ClientSession, places: asyncio.Semaphore
    ) -> Reply | Failure:
        """The reply to a question, of the cache or of the server after as many requests as it takes."""
        body = self._body(question)
        stored = None if self.cache is None else self.cache.get(body)
        if stored is not None:
            self.counts["cached"] += 1
            return Reply(stored.text, options=stored.options)  # its tokens were paid before
        result: Reply | Failure = Failure("it was not asked")
        for attempt in range(self.retries + 1):
            if attempt:
                self.counts["retries"] += 1
                await asyncio.sleep(min(self.backoff_s * 2 ** (attempt - 1), _MOST_WAIT_S))
            try:
                async with places:
                    result = _read_reply(await self._post(session, body), question)
            except _Refused as error:
                return Failure(f"{self.url} {error}")
            except _Passing as error:
                result = Failure(f"{self.url} {error}, {attempt + 1} times")
                continue
            self._count_cost(result)
            if not isinstance(read_verdict(question, result), Failure):
                if self.cache is not None:
                    self.cache.put(body, result)
                return result
            if self.temperature == 0:
                return result  # the same again
        return result

    def _body(self, question: Question) -> dict[str, Any]:
        content: Any = question.text
        if question.images:
            images = [{"type": "image_url", "image_url": {"url": _encode(image)}} for image in question.images]
            content = [*images, {"type": "text", "text": question.text}]
        read = {"max_tokens": 1, "logprobs": True, "top_logprobs": TOP_LOGPROBS} if question.options else {}
        sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens, **read}
        return {"model": self.model, "messages": [{"role": "user", "content": content}], **sampling, **self.options}

    async def _post(self, session: aiohttp.ClientSession, body: Mapping[str, Any]) -> Any:
        try:
            async with session.post(self.url, json=body, allow_redirects=False) as response:
                content = b""
                async for chunk in response.content.iter_chunked(2**16):
                    content += chunk
                    if len(content) > MAX_BYTES:
                        raise _Passing(f"answered more than {MAX_BYTES} bytes")
                status = response.status
        except TimeoutError as error:
            raise _Passing(f"did not answer within reward.judge.timeout_s={self.timeout_s:g}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Passing(f"does not answer: {error or type(error).__name__}") from error
        text = content.decode("utf-8", "replace")
        if status in _PASSING or status >= 500:
            raise _Passing(f"answered {status}: {text[:200]}")
        if status != 200:
            raise _Refused(f"answered {status}: {text[:200]}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise _Passing(f"answered no JSON: {text[:200]!r}") from error

    def _count_cost(self, reply: Reply) -> None:
        prompt, completion = self.price
        cost = (prompt * reply.prompt_tokens + completion * reply.completion_tokens) / 1e6
        self.counts["cost"] += cost  # type: ignore[assignment]


def _read_reply(answer: Any, question: Question) -> Reply:
    """Read the answer of the interface; raises _Passing where it has another form."""
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        tokens = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
        options = {}
        if question.options:
            if not choice.get("logprobs"):
                raise _Refused(
                    "gives no log-probs, which this question is read from; take a form with a written verdict"
                )
            options = _sum_options(choice["logprobs"]["content"][0]["top_logprobs"], question.options)
        return Reply(str(choice["message"]["content"] or ""), *map(int, tokens), options)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _Passing(f"answered in another form: {json.dumps(answer)[:200]}") from error


def _sum_options(tokens: Sequence[Mapping[str, Any]], options: Sequence[str]) -> dict[str, float]:
    """Log-prob of each option over the listed tokens; one that is not listed has that of the least likely token.

    Raises:
        _Passing: no option is listed.
    """
    listed = [(token["token"].strip().lower(), float(token["logprob"])) for token in tokens]
    sums = {option: [value for text, value in listed if text == option] for option in options}
    if not any(sums.values()):
        raise _Passing(f"gives none of {list(options)} among its most likely first words")
    least = min(value for _, value in listed)
    return {option: math.log(sum(map(math.exp, values))) if values else least for option, values in sums.items()}


def _encode(image: Any) -> str:
    """The PNG of a picture as a data URL."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a thread of its own, because a notebook's thread has a loop already."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, name="mmrl judge")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
