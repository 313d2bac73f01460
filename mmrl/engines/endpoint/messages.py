"""Messages of OpenAI's chat interface as chat templates read them, and when two of them are equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.images import MOST_IMAGES, read_image

Message = dict[str, Any]
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_TEXT = "text"  # the kind of a content part
_EMPTY = (None, [], {}, "")


def read_messages(messages: Any, clean: Callable[[str], str]) -> list[Message]:
    """Read the messages of a request into the form that chat templates take.

    A developer's message is a system message, text parts are joined where there are no images between them, arguments
    of calls are objects, and empty further fields, which clients send back with a reply, are left out. Results of calls
    get the name of the called function. An image is a part {type: image, image: `RequestImage`}.

    Args:
        messages: of the body.
        clean: breaks special tokens in a text, so that a content can neither end nor open a turn.

    Raises:
        RequestError: with the number of the message.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list of at least one message", "messages")
    names: dict[str, str] = {}  # of the called functions, by the id of the call
    out = [_read_message(message, f"messages[{number}]", clean, names) for number, message in enumerate(messages)]
    if (count := sum(map(count_images, out))) > MOST_IMAGES:
        raise RequestError(f"the messages have {count} images, at most {MOST_IMAGES} are read; send fewer", "messages")
    return out


def count_images(message: Mapping[str, Any]) -> int:
    """Return how many images a message has."""
    content = message["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == "image" for part in content)


def text_length(message: Mapping[str, Any]) -> int:
    """Return how many characters the content of a message has."""
    content = message["content"]
    return len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)


def _read_message(message: Any, place: str, clean: Callable[[str], str], names: dict[str, str]) -> Message:
    if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
        raise RequestError(f"{place}: must be an object whose role is one of {', '.join(_ROLES)}", place)
    role = _ROLES[message["role"]]
    further = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
    calls = message.get("tool_calls") or []
    if calls and role != "assistant":
        raise RequestError(f"{place}: tool_calls belong to a message of the assistant", place)
    content = _read_content(message.get("content"), place, bool(calls), clean)
    out: Message = {"role": role, "content": content}
    if role != "user" and count_images(out):
        raise RequestError(f"{place}: images belong to messages of the user; send them in one", place)
    if calls:
        out["tool_calls"] = [_read_call(call, place) for call in calls] if isinstance(calls, list) else _refuse(place)
        names |= {call["id"]: call["function"]["name"] for call in out["tool_calls"]}
    if role == "tool":
        if not isinstance(message.get("tool_call_id"), str):
            raise RequestError(f"{place}: a message of role tool needs tool_call_id, a text", place)
        if message["tool_call_id"] in names:
            out["name"] = names[message["tool_call_id"]]
    return {**out, **{key: value for key, value in further.items() if value not in _EMPTY}}


def _read_content(content: Any, place: str, calls: bool, clean: Callable[[str], str]) -> str | list[dict[str, Any]]:
    """The text of a message, or its parts where it has images; one with calls may have none."""
    if content is None and calls:
        return ""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        raise RequestError(f"{place}.content must be a text or a list of parts", place)
    if len([part for part in content if isinstance(part, Mapping) and part.get("type") == "image_url"]) > MOST_IMAGES:
        raise RequestError(f"{place}.content: more than {MOST_IMAGES} images; send fewer", place)
    parts = [_read_part(part, place) for part in content]
    if all(part["type"] == _TEXT for part in parts):
        return clean("".join(part["text"] for part in parts))
    return [{**part, "text": clean(part["text"])} if part["type"] == _TEXT else part for part in parts]


def _read_part(part: Any, place: str) -> dict[str, Any]:
    """A part of a content: a text, or a decoded image."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "image_url":
        return {"type": "image", "image": read_image(part, place)}
    if kind != _TEXT or not isinstance(part.get("text"), str):
        raise RequestError(f"{place}.content: parts of type {kind!r} are not read here; send text or image_url", place)
    if further := sorted(part.keys() - {"type", "text"}):
        raise RequestError(f"{place}.content: {further[0]!r} of a text part is not read; leave it out", place)
    return {"type": _TEXT, "text": part["text"]}


def _refuse(place: str) -> Any:
    raise RequestError(f"{place}.tool_calls must be a list of calls", place)


def _read_call(call: Any, place: str) -> dict[str, Any]:
    """A call with its arguments as an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or call.get("type", "function") != "function":
        raise RequestError(f"{place}.tool_calls: a call is {{id, type: function, function}}", place)
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(call.get("id"), str) or not isinstance(name, str):
        raise RequestError(f"{place}.tool_calls: a call needs id and function.name, both texts", place)
    if further := sorted(
        (call.keys() - {"id", "type", "function", "index"}) | (function.keys() - {"name", "arguments"})
    ):
        raise RequestError(f"{place}.tool_calls: {further[0]!r} of a call is not read; leave it out", place)
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise RequestError(f"{place}.tool_calls: arguments of {name!r} must be the JSON text of an object", place)
    return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": values}}


def read_tools(tools: Any) -> list[dict[str, Any]]:
    """Read the tools of a request: schemas of functions.

    Raises:
        RequestError: with the number of the tool.
    """
    if not isinstance(tools, list):
        raise RequestError("tools must be a list of {type: function, function: {...}}", "tools")
    for number, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools[{number}]: must be {{type: function, function: {{name: ...}}}}", "tools")
        if function.get("strict"):
            raise RequestError(f"tools[{number}]: strict=true is not enforced here; leave it out", "tools")
    return [dict(tool) for tool in tools]


def message_key(message: Mapping[str, Any]) -> Hashable:
    """Return a value that is equal for messages that say the same, whatever the ids of calls and results are."""
    entries = {key: value for key, value in message.items() if key not in ("tool_call_id", "name")}
    calls = [call["function"] for call in entries.pop("tool_calls", ())]
    return json.dumps([entries, calls], sort_keys=True, default=str)


def conversation_key(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> tuple[Hashable, ...]:
    """Return the keys of the tools and of each message, in order."""
    return (json.dumps(list(tools), sort_keys=True, default=str), *map(message_key, messages))
