"""Read calls from an answer, and write them."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.bfcl.verdict import Call

_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
_FENCE = re.compile(r"\A```[a-z_]*\n(.*?)\n?```\Z", re.DOTALL)
_MOST = 20_000  # characters of an answer that are parsed
_SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class _UnreadableError(Exception):
    """It is no call."""


def read_calls(text: str) -> list[Call]:
    """Read the calls of an answer; [] if it is none.

    They are `[name(parameter=value), ...]` or one call in Python's syntax, JSON objects with name and arguments, alone
    or in a list, or such objects in blocks <tool_call>.

    Values in Python's syntax are literals, sums and products of numbers; a name, a call or an item of something are
    their text. Arguments without a name are left out, as the leaderboard does.
    """
    text = text.strip()[:_MOST]
    if fence := _FENCE.match(text):
        text = fence[1].strip()
    blocks = _BLOCK.findall(text)
    try:
        if blocks:
            return [call for block in blocks for call in _read_json(json.loads(block))]
        try:
            return _read_json(json.loads(text))
        except ValueError:
            return _read_python(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, OverflowError, _UnreadableError):
        return []


def write_calls(calls: Sequence[Call], style: str) -> str:
    """Write calls in Python's syntax (style "prompt"), or as JSON in blocks <tool_call> (style "template")."""
    if style == "template":
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        return "\n".join(f"<tool_call>\n{block}\n</tool_call>" for block in blocks)
    written = (
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})" for name, arguments in calls
    )
    return f"[{', '.join(written)}]"


def _read_json(value: Any) -> list[Call]:
    calls = value if isinstance(value, list) else [value]
    for call in calls:
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise _UnreadableError
        if not isinstance(call.get("arguments"), Mapping):
            raise _UnreadableError
    return [(call["name"], dict(call["arguments"])) for call in calls]


def _read_python(text: str) -> list[Call]:
    """As the leaderboard: quotes around the whole are left out, brackets may be."""
    text = text.strip("`\n '")
    body = ast.parse(text if text.startswith("[") else f"[{text}]", mode="eval").body
    if not isinstance(body, ast.List):
        raise _UnreadableError
    return [_read_call(item) for item in body.elts]


def _read_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise _UnreadableError
    name = ast.unparse(node.func)
    if not all(part.isidentifier() for part in name.split(".")) or any(word.arg is None for word in node.keywords):
        raise _UnreadableError
    return name, {str(word.arg): _read_value(word.value) for word in node.keywords}


def _read_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return "..." if node.value is Ellipsis else node.value
    if isinstance(node, ast.List):
        return [_read_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_read_value(item) for item in node.elts)
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {_read_value(key): _read_value(item) for key, item in zip(node.keys, node.values) if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return -_read_number(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        try:
            return _SIGNS[type(node.op)](_read_number(node.left), _read_number(node.right))
        except ZeroDivisionError as error:
            raise _UnreadableError from error
    if isinstance(node, ast.Call) and node.keywords:
        name, arguments = _read_call(node)
        return {name: arguments}
    if isinstance(node, ast.Name | ast.Call | ast.Subscript):
        return ast.unparse(node)
    raise _UnreadableError


def _read_number(node: ast.expr) -> Any:
    value = _read_value(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnreadableError
    return value
