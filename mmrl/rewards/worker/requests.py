"""Which server a reward function asked last, and what its failure means."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_LONGEST = 200  # characters of an answer
_last: dict[str, str] = {}
"""`asked`: the last URL or address that this process asked; empty before the first request."""
_FILES = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, ValueError)
"""Errors of files, and of what was read, among those of the operating system."""
_REMEDIES = {
    400: "correct the fields of the request, such as the name of the model",
    401: "give the key that the server asks for",
    403: "give a key that may do this",
    404: "correct the path, or the name of the model",
    405: "correct the path",
    422: "correct the fields of the request",
    429: "ask less at once, or allow some failures with reward.max_failures",
}


def note_requests() -> None:
    """Note from now on which address this process asks; for a worker, since Python cannot take it back."""
    if "noting" not in _last:
        _last["noting"] = "yes"
        sys.addaudithook(_note)


def forget_requests() -> None:
    """Forget the requests of earlier calls."""
    for name in ("asked", "host"):
        _last.pop(name, None)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "urllib.Request":
        _last["asked"] = str(arguments[0])
    elif event == "socket.getaddrinfo":
        _last["host"] = f"{_text(arguments[0])}:{_text(arguments[1])}"
    elif event == "socket.connect" and isinstance(arguments[1], tuple) and len(arguments[1]) >= 2:
        address = f"{arguments[1][0]}:{arguments[1][1]}"
        host = _last.pop("host", address)  # the name that was looked up for it
        if host not in _last.get("asked", ""):
            _last["asked"] = host


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def explain_request(error: BaseException) -> str:
    """Say which server was asked before an error, what it answered and what helps; empty where none was asked."""
    chain = list(_list_causes(error))
    url = next(filter(None, map(_read_url, chain)), "") or _last.get("asked", "") or _last.get("host", "")
    if not url:
        return ""
    for each in chain:
        code = _read_code(each)
        if code is not None:
            remedy = _REMEDIES.get(code, "look into the server's log")
            return f"{url} answered with status {code}{_read_body(each)}; {remedy}"
    if any(isinstance(each, OSError) and not isinstance(each, _FILES) for each in chain):
        return f"{url} did not answer; start the server, or correct its address"
    return f"{url} was asked before; compare what it answers with what the function reads"


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that led to it, also as `reason` of urllib's."""
    ids: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and id(each) not in ids:
            ids.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__, getattr(each, "reason", None)]


def _read_url(error: BaseException) -> str:
    """The URL that an error of urllib, requests, httpx or openai names."""
    for part in (error, _attribute(error, "response"), _attribute(error, "request")):
        url = _attribute(part, "url")
        if url:
            return str(url)
    return ""


def _read_code(error: BaseException) -> int | None:
    for part in (error, _attribute(error, "response")):
        for name in ("code", "status_code", "status"):
            code = _attribute(part, name)
            if isinstance(code, int) and 300 <= code < 600:
                return int(code)
    return None


def _read_body(error: BaseException) -> str:
    """The beginning of what a server answered."""
    text = _attribute(_attribute(error, "response"), "text")
    if text is None and callable(read := _attribute(error, "read")):
        try:
            text = read(4 * _LONGEST).decode(errors="replace")
        except Exception:  # it was read, or the connection is gone
            text = None
    flat = " ".join(text.split()) if isinstance(text, str) else ""
    return f" ({flat[:_LONGEST]})" if flat else ""


def _attribute(value: Any, name: str) -> Any:
    """An attribute of what others wrote, which may raise."""
    try:
        return getattr(value, name, None)
    except Exception:  # httpx raises where a request is not set
        return None
