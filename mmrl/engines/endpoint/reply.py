"""Replies to requests for chat completions, as one JSON object or as server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.engines.endpoint.messages import Message
from mmrl.engines.endpoint.request import ChatRequest


@dataclass(frozen=True)
class ChatChoice:
    """One sampled message.

    Args:
        message: of the assistant, as chat templates take it: arguments of calls are objects.
        finish_reason: stop, length or tool_calls.
        tokens: text and log-prob in nats of every sampled token, under the distribution that it was drawn from.
        malformed: whether the completion has a call that cannot be read; it is then the content, as it was written.
    """

    message: Message
    finish_reason: str
    tokens: Sequence[tuple[str, float]]
    malformed: bool = False

    def message_body(self) -> dict[str, Any]:
        """Return the message as clients read it: arguments of calls are JSON texts."""
        calls = [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in self.message.get("tool_calls", ())
        ]
        content = self.message["content"]
        return {
            "role": "assistant",
            "content": content or (None if calls else ""),
            **({"tool_calls": calls} if calls else {}),
        }

    def logprobs_body(self) -> dict[str, Any]:
        """Return the log-probs of the tokens."""
        return {
            "content": [
                {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
                for text, logprob in self.tokens
            ],
            "refusal": None,
        }


@dataclass(frozen=True)
class ChatReply:
    """The choices for one request.

    Args:
        name: id of the reply.
        choices: in order.
        prompt_tokens: ids that the policy read.
    """

    name: str
    choices: Sequence[ChatChoice]
    prompt_tokens: int

    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens that were read and sampled."""
        sampled = sum(len(choice.tokens) for choice in self.choices)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": sampled,
            "total_tokens": self.prompt_tokens + sampled,
        }

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the reply as one object."""
        choices = [
            {
                "index": index,
                "message": {**choice.message_body(), "refusal": None},
                "logprobs": choice.logprobs_body() if request.logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self.choices)
        ]
        return {**self._head("chat.completion", request), "choices": choices, "usage": self.usage()}

    def events(self, request: ChatRequest) -> Iterator[str]:
        """Iterate over the events of a stream. A completion is sampled as a whole and is one event."""
        head = self._head("chat.completion.chunk", request)
        for index, choice in enumerate(self.choices):
            delta = choice.message_body()
            if "tool_calls" in delta:
                delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
            logprobs = choice.logprobs_body() if request.logprobs else None
            for part, reason, entry in ((delta, None, logprobs), ({}, choice.finish_reason, None)):
                chunk = {"index": index, "delta": part, "logprobs": entry, "finish_reason": reason}
                yield _format_event({**head, "choices": [chunk]})
        if request.include_usage:
            yield _format_event({**head, "choices": [], "usage": self.usage()})
        yield "data: [DONE]\n\n"

    def _head(self, kind: str, request: ChatRequest) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": int(time.time()), "model": request.model}


def _format_event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
