"""A judge behind a server with OpenAI's interface: vLLM, SGLang, llama.cpp, Ollama, or a hosted model."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from mmrl.core.errors import check_at_least
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer, read_verdict
from mmrl.rewards.judges.cache import ReplyCache
from mmrl.rewards.judges.client import PassingError, RefusedError, ServerConnection
from mmrl.rewards.judges.questions import Question, Reply

TOP_LOGPROBS = 20
"""Most likely first tokens that are asked for; the largest number of OpenAI's interface."""
_PATH = "/chat/completions"


class ServerJudge(ServerConnection, LanguageJudge):
    """Judge behind POST URL/chat/completions of OpenAI's interface, asked through a `ServerConnection`.

    A reply that cannot be read is asked for again where replies are drawn, with a temperature above 0.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        temperature: of the judge's sampling.
        max_tokens: of a reply.
        key_variable: environment variable with the key that is sent; nothing is sent where it is not set.
        cache: SQLite file with replies by model, question and sampling; None keeps none.
        price: of a million tokens of the prompt and of the reply, for `rollout/judge_cost`.
        options: further fields of the request, as {top_p: 0.9}.
        connection: further options of `ServerConnection`: max_requests, timeout_s, retries, backoff_s.
    """

    place = "reward.judge"
    sees_images = True

    def __init__(
        self,
        url: str | None = None,
        model: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        key_variable: str = "OPENAI_API_KEY",
        cache: str | None = None,
        price: tuple[float, float] = (0.0, 0.0),
        options: dict[str, Any] | None = None,
        **connection: Any,
    ):
        if not url or not model or not url.startswith(("http://", "https://")):
            raise ValueError(
                "the judge needs reward.judge.url=http://HOST:PORT/v1 and reward.judge.model=NAME, got "
                f"url={url!r} and model={model!r}"
            )
        check_at_least(0, self.place, temperature=temperature)
        check_at_least(1, self.place, max_tokens=max_tokens)
        super().__init__(url.rstrip("/").removesuffix(_PATH), key_variable=key_variable, **connection)
        self.model, self.temperature, self.max_tokens = model, temperature, max_tokens
        self.price, self.options = tuple(price), dict(options or {})
        self.cache = None if cache is None else ReplyCache(cache)

    def reply(self, questions: Sequence[Question]) -> list[Reply | NoAnswer]:
        bodies = [self._body(question) for question in questions]
        stored = [None if self.cache is None else self.cache.get(body) for body in bodies]
        asked = [number for number, reply in enumerate(stored) if reply is None]
        self.counts["cached"] += len(questions) - len(asked)
        # what is stored was paid before
        replies: list[Reply | NoAnswer | None] = [r and Reply(r.text, options=r.options) for r in stored]
        questions_asked, bodies_asked = [questions[n] for n in asked], [bodies[n] for n in asked]

        def read(number: int, answer: Any) -> Reply:
            return self._read(answer, questions_asked[number], bodies_asked[number])

        for number, reply in zip(asked, self.client.ask_all(_PATH, bodies_asked, read, self.counts)):
            replies[number] = reply
        return replies  # type: ignore[return-value]  # each has one now

    def _read(self, answer: Any, question: Question, body: Mapping[str, Any]) -> Reply:
        """Read an answer as soon as it is there, and store it where it has a verdict."""
        reply = _read_reply(answer, question)
        self._count_cost(reply)
        verdict = read_verdict(question, reply)
        if not isinstance(verdict, NoAnswer):
            if self.cache is not None:
                self.cache.put(body, reply)
        elif self.temperature > 0:
            raise PassingError(verdict.reason)
        return reply

    def _body(self, question: Question) -> dict[str, Any]:
        content: Any = question.text
        if question.images:
            images = [{"type": "image_url", "image_url": {"url": _encode(image)}} for image in question.images]
            content = [*images, {"type": "text", "text": question.text}]
        read = {"max_tokens": 1, "logprobs": True, "top_logprobs": TOP_LOGPROBS} if question.options else {}
        sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens, **read}
        return {"model": self.model, "messages": [{"role": "user", "content": content}], **sampling, **self.options}

    def _count_cost(self, reply: Reply) -> None:
        prompt, completion = self.price
        cost = (prompt * reply.prompt_tokens + completion * reply.completion_tokens) / 1e6
        self.counts["cost"] += cost  # type: ignore[assignment]


def _read_reply(answer: Any, question: Question) -> Reply:
    """Read the answer of the interface; raises PassingError where it has another form."""
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        tokens = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
        options = {}
        if question.options:
            if not choice.get("logprobs"):
                raise RefusedError(
                    "gives no log-probs, which this question is read from; take a form with a written verdict"
                )
            options = _sum_options(choice["logprobs"]["content"][0]["top_logprobs"], question.options)
        return Reply(str(choice["message"]["content"] or ""), *map(int, tokens), options)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise PassingError(f"answered in another form: {json.dumps(answer)[:200]}") from error


def _sum_options(tokens: Sequence[Mapping[str, Any]], options: Sequence[str]) -> dict[str, float]:
    """Log-prob of each option over the listed tokens; one that is not listed has that of the least likely token.

    Raises:
        PassingError: no option is listed.
    """
    listed = [(token["token"].strip().lower(), float(token["logprob"])) for token in tokens]
    sums = {option: [value for text, value in listed if text == option] for option in options}
    if not any(sums.values()):
        raise PassingError(f"gives none of {list(options)} among its most likely first words")
    least = min(value for _, value in listed)
    return {option: math.log(sum(map(math.exp, values))) if values else least for option, values in sums.items()}


def _encode(image: Any) -> str:
    """The PNG of a picture as a data URL."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
