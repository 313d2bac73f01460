"""An agent: a function of the user that is called with a row and the address of the policy, and returns a reward."""

from __future__ import annotations

import asyncio
import copy
import ctypes
import inspect
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mmrl.core.function_path import format_error, load_functions
from mmrl.core.messages import join_contents
from mmrl.core.types import Prompt
from mmrl.engines.endpoint.images import write_image_parts
from mmrl.rewards.scoring import is_number

KEY = "rollout.agent"
ENDPOINT = ("base_url", "model", "api_key", "seed")
"""Arguments beside the columns of the row: of the client, and a number that keys the agent's own draws."""
REWARD = "reward"
_JOIN_S = 5.0
_AGAIN_S = 0.25


class AgentStopped(BaseException):
    """End of an agent from outside: it took too long, or the collection is over."""


class AgentFunction:
    """The agent's function with its parameters.

    It takes arguments by name: base_url, model, api_key, seed; row, all columns of the row as one mapping; prompt (the
    text of the messages), messages, answer, images, and every column of the row. **kwargs takes all of them.

    Args:
        path: my_agent.py:run, my_agent.py:Agent.run or package.module:run; it may be async.

    Raises:
        ValueError: there is no such function, or a parameter cannot be given by name.
    """

    def __init__(self, path: str):
        if not path:
            raise ValueError(f"{KEY} is empty: name a function, as in {KEY}=my_agent.py:run")
        self.path, self.function = path, load_functions([path], KEY)[0]
        call = self.function if inspect.isroutine(self.function) else type(self.function).__call__
        self.is_async = inspect.iscoroutinefunction(call)
        parameters = inspect.signature(self.function).parameters.values()
        unnamed = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY and each.default is each.empty]
        if unnamed:
            raise ValueError(f"{KEY}={path} takes {unnamed[0]!r} by position only; remove the / from its parameters")
        named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        self._required = [each.name for each in named if each.default is each.empty]
        self._names = {each.name for each in named}
        self._takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)

    def bind(self, prompt: Prompt, endpoint: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of one call; they are copies, which the agent may change.

        Raises:
            ValueError: a required parameter is no column of the row.
        """
        row = {
            **prompt.info,
            "prompt": join_contents(prompt.messages),
            "messages": write_image_parts(prompt.messages, prompt.images),
            "answer": prompt.answer,
            "images": list(prompt.images),
        }
        columns = {**row, "row": row, **endpoint}
        if missing := [name for name in self._required if name not in columns]:
            place = f"add it to the row {prompt.place}" if prompt.place else "choose a task that has it"
            raise ValueError(
                f"{KEY}={self.path}: it has a parameter {missing[0]!r}, and {prompt.key!r} has no such column; there "
                f"are {', '.join(columns)}. Rename the parameter, give it a default, or {place}"
            )
        return copy.deepcopy({k: v for k, v in columns.items() if self._takes_all or k in self._names})


class AgentRun:
    """One call of an agent in a thread of its own.

    Args:
        function: of the agent.
        arguments: by name.
        notify: is called when the call has ended; it takes no lock.
    """

    def __init__(self, function: AgentFunction, arguments: Mapping[str, Any], notify: Callable[[], None]):
        self.result: Any = None
        self.done = False
        self.active_since = time.monotonic()  # when the agent was last given something
        self._function, self._arguments, self._notify = function, arguments, notify
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            result = self._call()
        except BaseException as error:  # SystemExit ends only the call
            result = error
        self.result = result
        self.done = True  # without a lock: `stop` may raise in any line here, and a lock would stay closed
        with suppress(RuntimeError):  # the server has ended
            self._notify()

    def _call(self) -> Any:
        value = None if self._function.is_async else self._function.function(**self._arguments)
        return asyncio.run(self._await(value)) if self._function.is_async or inspect.isawaitable(value) else value

    async def _await(self, value: Any) -> Any:
        """Await the agent as a task, which `stop` cancels."""
        awaitable = self._function.function(**self._arguments) if value is None else value
        self._task = (asyncio.get_running_loop(), asyncio.ensure_future(awaitable))
        return await self._task[1]

    def stop(self) -> None:
        """End the call: an awaiting agent at once, another one when it next runs a line of Python."""
        if self.done:
            return
        if self._task is not None:
            loop, task = self._task
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)
        elif self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(AgentStopped)
            )

    def age_s(self) -> float:
        """Return the seconds since the agent was last given something."""
        return time.monotonic() - self.active_since

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return whether it has."""
        self._thread.join(max(timeout_s, 0))
        return not self._thread.is_alive()

    def failure(self) -> str | None:
        """Return what the agent raised, or what is wrong with its reward; None if it returned one."""
        if isinstance(self.result, BaseException):
            where, _, _ = self._function.path.rpartition(":")
            return f"raised {format_error(self.result, where)}"
        values = self.rewards()
        if values is None or REWARD not in values:
            return f"returned {self.result!r:.100}; it has to return a number, or numbers by name with {REWARD!r}"
        if not all(isinstance(name, str) and is_number(v) and math.isfinite(v) for name, v in values.items()):
            return f"returned {self.result!r:.100}, of which not all are finite numbers"
        return None

    def rewards(self) -> dict[str, Any] | None:
        """Return the numbers by name, as the agent returned them; None for another value."""
        if isinstance(self.result, Mapping):
            return dict(self.result)
        return {REWARD: self.result} if is_number(self.result) else None


def join_runs(runs: Sequence[AgentRun], timeout_s: float = _JOIN_S) -> int:
    """Wait for the threads of stopped agents, some seconds in all; return how many are still alive.

    An agent whose thread runs on is stopped again: Python ignores an exception that a finalizer raises.
    """
    end, again = time.monotonic() + timeout_s, time.monotonic() + _AGAIN_S
    while (alive := [run for run in runs if not run.join(0)]) and time.monotonic() < end:
        if time.monotonic() > again:
            again += _AGAIN_S
            for run in alive:
                run.stop()
        alive[0].join(_AGAIN_S / 10)
    return len(alive)
