"""Chat messages and tools of a row, as Hugging Face, OpenAI and TRL write them: every entry is used or refused by name.

A message has a role and a content. Further entries that chat templates read are kept: `tool_calls` of the assistant,
`tool_call_id` of a tool's result, `name`, and the reasoning of the assistant. Other entries are refused, since they
would not be read; entries without a value say nothing and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mmrl.files.strict_json import BrokenJSON, kind, parse_json, quote

Message = dict[str, Any]
ROLES = ("system", "user", "assistant", "tool")
_REASONING = ("reasoning_content", "reasoning", "thinking")
"""Names of the assistant's thoughts in the messages of different servers and templates."""
_TEXTS = {"name": ROLES, "tool_call_id": ("tool",), **dict.fromkeys(_REASONING, ("assistant",))}
"""Entries that are texts, and the roles that have them."""
_REMEDIES = {
    "function_call": "write it as 'tool_calls', a list of calls",
    "refusal": "write it into 'content', as the policy shall answer, or delete the row",
    "audio": "no policy here hears; delete the row",
    "weight": "delete it, and the messages that shall not be learned",
}
_EMPTY = (None, [], {}, "")


def read_message(value: Any, name: str, place: str, filled: bool = False, ignored: Collection[str] = ()) -> Message:
    """Read a chat message; its content is a text, or a list that the caller reads.

    Args:
        value: of the message.
        name: of the column, for messages.
        place: file and row, for messages.
        filled: whether entries that are missing stand as None inside of structures, as in Arrow's tables.
        ignored: names of entries that are left out.

    Raises:
        ValueError: another form, or an entry that is not read.
    """
    where = f"{place}: column {name!r}"
    if not isinstance(value, Mapping) or value.get("role") not in ROLES:
        other = " ('from' and 'value' are another format)" if isinstance(value, Mapping) and "from" in value else ""
        raise ValueError(
            f"{where} holds {quote(value)}, which is no chat message: it needs 'role', one of {', '.join(ROLES)}, and "
            f"'content'{other}; convert other formats"
        )
    role, content, message = value["role"], value.get("content"), {}
    for key, entry in value.items():
        if key not in ("role", "content", *ignored) and not (entry is None or entry in _EMPTY):
            message[key] = _read_entry(key, entry, role, where, filled)
    if content is None and "tool_calls" in message:
        content = ""  # which every template takes
    if not isinstance(content, str | list):
        raise ValueError(f"{where} has a message whose content is {kind(content)}; write a text")
    return {"role": role, "content": content, **message}


def _read_entry(key: str, entry: Any, role: str, where: str, filled: bool) -> Any:
    if key == "tool_calls" and role == "assistant":
        if not isinstance(entry, list):
            raise ValueError(f"{where} has 'tool_calls' that are {kind(entry)}; write a list of calls")
        return [_read_call(call, where, filled) for call in entry]
    if role in _TEXTS.get(key, ()):
        if not isinstance(entry, str):
            raise ValueError(f"{where} has a message whose {key!r} is {kind(entry)}; write a text")
        return entry
    remedy = _REMEDIES.get(key, f"delete it, or leave it out by task.ignored=[{key}]")
    raise ValueError(f"{where} has a message of role {role!r} with {key!r}, which would not be read; {remedy}")


def _read_call(value: Any, where: str, filled: bool) -> dict[str, Any]:
    """Read a call, {type, id, function: {name, arguments}} or {name, arguments}; the arguments become an object."""
    call = value if isinstance(value, Mapping) else {}
    function = call.get("function") or call
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name or call.get("type") not in (None, "function"):
        raise ValueError(
            f"{where} has the call {quote(value)}; write {{type: function, function: {{name: ..., arguments: ...}}}}"
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str):  # OpenAI's form; templates write an object, and would quote a text once more
        try:
            arguments = parse_json(arguments or "{}", f"{where}: the arguments of {name!r}", "write an object")
        except BrokenJSON as error:
            raise ValueError(str(error)) from error
    elif filled:
        arguments = drop_missing(arguments)
    if not isinstance(arguments := {} if arguments is None else arguments, dict):
        raise ValueError(f"{where} has a call of {name!r} whose arguments are {kind(arguments)}; write an object")
    rest = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {"type": "function", **rest, "function": {"name": name, "arguments": arguments}}


def read_tools(value: Any, name: str, place: str, filled: bool = False) -> tuple[dict[str, Any], ...]:
    """Read the schemas of the tools of a row: a list, or its JSON text; none where the cell is empty.

    Args:
        value: of the cell; a tool is {type: function, function: {name, ...}} or {name, parameters, ...}.
        name: of the column, for messages.
        place: file and row, for messages.
        filled: as of `read_message`.
    """
    where = f"{place}: column {name!r}"
    if isinstance(value, str) and value.strip():
        try:
            value = parse_json(value, where, "write a JSON list of tools")
        except BrokenJSON as error:
            raise ValueError(str(error)) from error
    elif filled:
        value = drop_missing(value)
    if value in (None, "", [], {}):
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list of tools, or its JSON text, got {quote(value)}")
    return tuple(_read_tool(tool, where) for tool in value)


def _read_tool(value: Any, where: str) -> dict[str, Any]:
    tool = value if isinstance(value, Mapping) else {}
    wrapped = tool if "function" in tool else {"type": "function", "function": tool}
    function = wrapped["function"]
    if wrapped.get("type") != "function" or not (
        isinstance(function, Mapping) and isinstance(function.get("name"), str)
    ):
        raise ValueError(
            f"{where} has the tool {quote(value)}; write {{type: function, function: {{name: ..., description: ..., "
            "parameters: ...}}"
        )
    return dict(wrapped)


def drop_missing(value: Any) -> Any:
    """Leave out entries that are None at any depth: Arrow fills the structures of a list to the same entries."""
    if isinstance(value, Mapping):
        return {key: drop_missing(entry) for key, entry in value.items() if entry is not None}
    return [drop_missing(entry) for entry in value] if isinstance(value, list) else value


def join_text(content: Any) -> str | None:
    """The text of a content that has no part but texts; None for another."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in parts]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None  # type: ignore[arg-type]


def describe_extras(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> list[str]:
    """Texts of what messages have beside role and content, and of the tools, for the identity of a problem."""
    extras = [{key: m[key] for key in m if key not in ("role", "content")} for m in messages]
    numbered = [(i, each) for i, each in enumerate(extras) if each]
    return [json.dumps(each, sort_keys=True, default=str) for each in (*numbered, *tools)]
