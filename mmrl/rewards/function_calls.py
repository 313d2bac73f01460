"""Call reward functions with arguments by name, and convert what they return to named numbers.

These calls run in a worker process, which imports neither torch nor the policy.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import numbers
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from mmrl.core.function_path import format_error, load_functions, split_path
from mmrl.rewards.worker.requests import explain_request, forget_requests, note_requests

KEY = "reward"
BATCH = {"prompts": "prompt", "completions": "completion", "answers": "answer"}
"""Parameters by which a function takes all completions of a prompt, and the name of one entry."""
_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Signature:
    """What a reward function is called with.

    `batch`: called once for all completions of a prompt, with lists, because a parameter is named in BATCH; else for
    each completion. `takes_all`: it has **kwargs.
    """

    path: str
    name: str
    batch: bool
    is_async: bool
    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_all: bool


@dataclass(frozen=True)
class Failure:
    """Why a call gave no scores, and at which of the completions of a batch, if one is to blame."""

    reason: str
    position: int | None = None


class _Refused(Exception):
    """A returned value that is no score."""

    def __init__(self, reason: str, position: int | None = None):
        self.failure = Failure(reason, position)


def read_signature(function: Callable[..., Any], path: str) -> Signature:
    """Read the parameters of a function. Raises ValueError where they cannot be given by name."""
    name = split_path(path, KEY)[1].rpartition(".")[2]
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise ValueError(f"reward={path}: {name} has no signature; wrap it in a function of your own") from error
    # arguments are given by name only
    if unnamed := [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]:
        raise ValueError(
            f"reward={path}: {name} takes {unnamed[0]!r} by position only; remove the / from its parameters"
        )
    keywords = [p for p in parameters if p.kind in _KEYWORD]
    # a plural parameter, such as `completions`: one call per prompt with lists; else one per completion
    batch = any(p.name in BATCH for p in keywords)
    if batch and any(p.name == "completion" for p in keywords):
        plural = next(p.name for p in keywords if p.name in BATCH)
        raise ValueError(
            f"reward={path}: {name} takes `completion`, which is one, and {plural}, which are of all completions of "
            "a prompt; rename one of them"
        )
    # a callable object is async if its __call__ is
    call = function if inspect.isroutine(function) else type(function).__call__
    return Signature(
        path,
        name,
        batch,
        inspect.iscoroutinefunction(call),
        tuple(p.name for p in keywords if p.default is p.empty),
        tuple(p.name for p in keywords if p.default is not p.empty),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def bind_arguments(signature: Signature, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keyword arguments of one call.

    Args:
        signature: of the function.
        rows: the fields and columns of the completions of a prompt, or of one completion.

    Raises:
        KeyError: with the name of a required parameter that is no field and no column.
    """
    columns = {**{name: name for name in rows[0]}, **(BATCH if signature.batch else {})}
    if missing := [name for name in signature.required if name not in columns]:
        raise KeyError(missing[0])
    parameters = {*signature.required, *signature.optional}
    names = {name: column for name, column in columns.items() if signature.takes_all or name in parameters}
    if signature.batch:
        return {name: [row[column] for row in rows] for name, column in names.items()}
    return {name: rows[0][column] for name, column in names.items()}


class FunctionCalls:
    """Loaded functions and their signatures.

    Args:
        paths: of the functions.
        copies: call them with copies of the arguments, which they may change; a process of its own has copies anyway.
        patience_s: after so many seconds, coroutines that have not ended are failures; None waits for all.
    """

    def __init__(self, paths: Sequence[str], copies: bool = False, patience_s: float | None = None):
        self._copies, self._patience_s = copies, patience_s
        if not copies:
            note_requests()
        self.functions = load_functions(paths, KEY)
        self.signatures = [read_signature(function, path) for function, path in zip(self.functions, paths)]
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, number: int | None, calls: Sequence[tuple[dict[str, Any], int]] = ()) -> Any:
        """Return the signatures, or for each call of a function its named numbers or its Failure.

        Args:
            number: of the function; None for the signatures.
            calls: keyword arguments, and the number of completions. Coroutines of all calls run at the same time.
        """
        if number is None:
            return self.signatures
        signature, function = self.signatures[number], self.functions[number]
        calls = copy.deepcopy(calls) if self._copies else calls
        if signature.is_async:
            return self._run(_gather(function, signature, calls, self._patience_s))
        return [_call(function, signature, *call) for call in calls]

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run coroutines in an event loop that stays, so that a client which a function keeps stays connected."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()  # in its own thread, because a notebook's has a loop already
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _gather(
    function: Callable[..., Awaitable[Any]],
    signature: Signature,
    calls: Sequence[tuple[dict[str, Any], int]],
    patience_s: float | None,
) -> list[Any]:
    async def call(arguments: dict[str, Any], count: int) -> Any:
        try:
            return _convert(await function(**arguments), signature, count)
        except BaseException as error:
            return _fail(error, signature)

    if not calls:
        return []
    forget_requests()
    tasks = [asyncio.ensure_future(call(*arguments)) for arguments in calls]
    _, pending = await asyncio.wait(tasks, timeout=patience_s)
    for task in pending:
        task.cancel()
    late = Failure("had not answered when reward.timeout_s was nearly over, which is the limit of all calls together")
    return [late if task in pending else task.result() for task in tasks]


def _call(function: Callable[..., Any], signature: Signature, arguments: dict[str, Any], count: int) -> Any:
    forget_requests()
    try:
        return _convert(function(**arguments), signature, count)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        return _fail(error, signature)


def _fail(error: BaseException, signature: Signature) -> Failure:
    if isinstance(error, _Refused):
        return error.failure
    text = f"raised {format_error(error, split_path(signature.path, KEY)[0])}"
    return Failure("; ".join(filter(None, (text, explain_request(error)))))


def _convert(value: Any, signature: Signature, count: int) -> list[dict[str, float]]:
    """Convert a returned value to the named numbers of each completion."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise _Refused("returned what has to be awaited; declare it, or what decorates it, with async def")
    if not signature.batch:
        return [_read_scores(value, signature.name, None)]
    if isinstance(value, Mapping):  # of lists
        columns = {name: _read_list(column, f"a list {name!r} of", count) for name, column in value.items()}
        value = [dict(zip(columns, numbers)) for numbers in zip(*columns.values())]
    return [_read_scores(one, signature.name, i) for i, one in enumerate(_read_list(value, "a list of", count))]


def _read_list(value: Any, what: str, count: int) -> list[Any]:
    values = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(values, (list, tuple)):
        raise _Refused(f"returned {_shorten(value)}; a function of `completions` returns {what} one number for each")
    if len(values) != count:
        raise _Refused(f"returned {what} {len(values)} values for {count} completions")
    return list(values)


def _read_scores(value: Any, name: str, position: int | None) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {name: _read_number(value, "", position)}
    if not value:
        raise _Refused("returned an empty dict; give a number for each name", position)
    if wrong := [key for key in value if not isinstance(key, str) or not key or "/" in key]:
        raise _Refused(f"returned a dict with the key {wrong[0]!r}; the names of scores are text without /", position)
    return {key: _read_number(number, f" as {key!r}", position) for key, number in value.items()}


def _read_number(value: Any, where: str, position: int | None) -> float:
    number = value.tolist() if hasattr(value, "tolist") else value  # of NumPy and torch
    try:
        if isinstance(number, (numbers.Real, Decimal)):
            number = float(number)
            if math.isfinite(number):
                return number
    except (OverflowError, ValueError):
        pass
    raise _Refused(f"returned {_shorten(value)}{where}, which is not a finite number", position)


def _shorten(value: Any, length: int = 100) -> str:
    text = repr(value)
    text = text if len(text) <= length else text[:length] + "..."
    return text if isinstance(value, (int, float, type(None))) else f"{text} ({type(value).__name__})"
