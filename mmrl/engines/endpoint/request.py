"""Requests for chat completions: what the endpoint reads of them, and what it refuses by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mmrl.core.types import Sampling
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.messages import Message, read_messages, read_tools
from mmrl.files.strict_json import parse_json

MOST_CHOICES = 128
"""Largest `n`."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "top_logprobs"), (0, 0.0)),
    "logit_bias": ({},),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
}
"""Fields that are taken with the values that change nothing, and refused with others."""
_LABELS = ("user", "metadata", "safety_identifier")
"""Fields that describe the caller and, by their definition, do not change an answer."""
_READ = ("model", "messages", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "temperature", "top_p")
_READ = (*_READ, "top_k", "min_p", "n", "stop", "seed", "logprobs", "stream", "stream_options")


@dataclass(frozen=True)
class ChatRequest:
    """One request for chat completions.

    Args:
        model: the name that it asks for.
        messages: as chat templates read them.
        tools: schemas that the policy is shown.
        reads_calls: whether calls in a completion are `tool_calls` of the reply; False with tool_choice=none.
        sampling: fields of `Sampling` that the request names; temperature 0 is decode=argmax.
        n: number of choices.
        seed: of the draws; None for those of the caller.
        logprobs: whether the reply has the log-prob of every sampled token.
        stream: whether the reply is sent as events.
        include_usage: whether a stream ends with the number of tokens.
    """

    model: str
    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    reads_calls: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    seed: int | None = None
    logprobs: bool = False
    stream: bool = False
    include_usage: bool = False

    def merge_sampling(self, default: Sampling, most: int | None = None) -> Sampling:
        """Return the sampling parameters: those that the request names, in place of the default's.

        Stop strings are added to those of the default.

        Args:
            default: of a request that names none.
            most: tokens of a completion that no request exceeds; None for those of the default.

        Raises:
            RequestError: the parameters exclude each other, such as stop strings and guided decoding.
        """
        fields = dict(self.sampling)
        limit = default.max_tokens if most is None else most
        fields["max_tokens"] = min(fields.get("max_tokens", default.max_tokens), limit)
        fields["stop"] = tuple(dict.fromkeys((*default.stop, *fields.get("stop", ()))))
        try:
            return replace(default, **fields)
        except ValueError as error:
            raise RequestError(str(error)) from error


def read_request(body: bytes | str, clean: Callable[[str], str]) -> ChatRequest:
    """Read the body of POST /v1/chat/completions.

    A field that is null is absent. Every other field is read, or refused by its name.

    Args:
        clean: breaks special tokens in the contents of messages.

    Raises:
        RequestError: the body is no JSON object, or a field cannot be read.
    """
    try:
        values = parse_json(body, "the body", "send one JSON object")
    except ValueError as error:
        raise RequestError(str(error)) from error
    if not isinstance(values, dict):
        raise RequestError("the body must be a JSON object")
    # every field is read, or has its neutral value, or is refused
    values = {name: value for name, value in values.items() if value is not None and name not in _LABELS}
    for name, value in values.items():
        if name in _NEUTRAL and not any(value == one and type(value) is type(one) for one in _NEUTRAL[name]):
            raise RequestError(f"{name}={value!r:.100} is not supported here; leave it out", name, "unsupported_value")
        if name not in _NEUTRAL and name not in _READ:
            raise RequestError(f"{name} is not read here; leave it out", name, "unknown_parameter")
    if not isinstance(values.get("model"), str):
        raise RequestError("model must be a text; GET /v1/models lists the names", "model")
    stream = _read_flag(values, "stream")
    options = values.get("stream_options", {})
    if "stream_options" in values and (not stream or not isinstance(options, dict) or set(options) > {"include_usage"}):
        raise RequestError("stream_options is {include_usage: true}, and belongs to stream=true", "stream_options")
    # calls can be offered or switched off, but not enforced
    tools = read_tools(values.get("tools", []))
    choice = values.get("tool_choice", "auto")
    if choice not in ("auto", "none"):
        raise RequestError(
            f"tool_choice={choice!r:.100}: a call cannot be enforced; use auto or none",
            "tool_choice",
            "unsupported_value",
        )
    return ChatRequest(
        model=values["model"],
        messages=read_messages(values.get("messages"), clean),
        tools=tools,
        reads_calls=bool(tools) and choice == "auto",
        sampling=_read_sampling(values),
        n=_read_whole(values, "n", 1, 1, MOST_CHOICES),
        seed=_read_whole(values, "seed", None, -(2**63), 2**63 - 1),
        logprobs=_read_flag(values, "logprobs"),
        stream=stream,
        include_usage=bool(options.get("include_usage", False)),
    )


def _read_sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Sampling` from those of the request."""
    out: dict[str, Any] = {}
    if "max_tokens" in values and values.get("max_completion_tokens", values["max_tokens"]) != values["max_tokens"]:
        raise RequestError("max_tokens and max_completion_tokens differ; send one of them", "max_tokens")
    for name in ("max_tokens", "max_completion_tokens"):
        if name in values:
            out["max_tokens"] = _read_whole(values, name, None, 1, 2**31)
    for name, low, high in (("temperature", 0.0, 2.0), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0)):
        if name in values:
            out[name] = _read_number(values[name], name, low, high)
    if "top_k" in values:
        out["top_k"] = _read_whole(values, "top_k", None, 0, 2**31)
    if out.get("top_p") == 0:
        raise RequestError("top_p must be above 0", "top_p")
    if out.get("temperature") == 0:
        del out["temperature"]
        out["decode"] = "argmax"
    elif "temperature" in out:
        out["decode"] = "sample"
    stop = values.get("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or len(stop) > 4 or not all(isinstance(text, str) and text for text in stop):
        raise RequestError("stop must be a text or a list of at most 4 texts", "stop")
    return {**out, **({"stop": tuple(stop)} if stop else {})}


def _read_number(value: Any, name: str, low: float, high: float) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not low <= value <= high:
        raise RequestError(f"{name} must be a number from {low:g} to {high:g}, got {value!r:.100}", name)
    return float(value)


def _read_whole(values: Mapping[str, Any], name: str, default: int | None, low: int, high: int) -> Any:
    value = values.get(name, default)
    if value is not None and (type(value) is not int or not low <= value <= high):
        raise RequestError(f"{name} must be a whole number from {low} to {high}, got {value!r:.100}", name)
    return value


def _read_flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, got {value!r:.100}", name)
    return value
