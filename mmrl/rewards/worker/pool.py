"""Pool of worker processes that call a trusted Python function and are killed when a call passes its time limit.

A thread cannot be stopped from outside, a process can, also while it hangs in C. `mmrl.tools.sandbox` is for programs
that are not trusted; here the function may do what the user may do.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import signal
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from typing import Any

from mmrl.distributed.ending import adopt_orphans, end_tree, end_with_parent, kill_tree
from mmrl.distributed.waiting import poll_awake
from mmrl.rewards.worker.output import show_output

_START = "import sys; sys.path[:] = {path!r}; from mmrl.rewards.worker.pool import serve; serve({end}, {parent})"
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


class WorkerError(RuntimeError):
    """A call without a result. The pool goes on with another worker."""


class CallTimedOut(WorkerError):
    """The call passed its time limit, and its process was killed."""


class WorkerDied(WorkerError):
    """The process ended during the call: by a signal, by running out of memory, by os._exit."""


class CallRaised(WorkerError):
    """The function raised.

    Attributes:
        kind: name of the exception's class.
        text: its message.
        traceback: formatted, of the worker's process.
    """

    def __init__(self, kind: str, text: str, traceback: str):
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind, self.text, self.traceback = kind, text, traceback

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.text, self.traceback)


class WorkerPool:
    """Call a function in processes of its own, which start at the first call and stay for later ones.

    Any number of threads may call at the same time; a fork and a pickled copy start workers of their own.

    Args:
        load: function without arguments, called once in each worker, that returns the function to call. It is pickled,
            so it must be importable: `functools.partial` of a module's function carries arguments.
        processes: number of workers, which is the number of calls at the same time.
        timeout_s: time limit of a call, in seconds.
        start_timeout_s: time limit of a worker's start, imports and `load` included.
    """

    def __init__(
        self,
        load: Callable[[], Callable[..., Any]],
        *,
        processes: int = 1,
        timeout_s: float = 60.0,
        start_timeout_s: float = 300.0,
    ):
        if processes < 1:
            raise ValueError(f"processes must be at least 1, got {processes}")
        for name, value in (("timeout_s", timeout_s), ("start_timeout_s", start_timeout_s)):
            if not 0 < value < 1e6:
                raise ValueError(f"{name} must be > 0 and below 1e6 seconds, got {value}")
        self.load, self.processes = load, processes
        self.timeout_s, self.start_timeout_s = timeout_s, start_timeout_s
        self._reset()

    def _reset(self) -> None:
        _pools.add(self)
        self._owner = os.getpid()
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()  # None: a worker that is not started
        for _ in range(self.processes):
            self._idle.put(None)

    def start(self) -> None:
        """Start one worker, so that an error of `load` shows before the first call."""
        self._use(lambda worker: None)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Return function(*args, **kwargs).

        Raises:
            CallTimedOut: the time limit passed. WorkerDied: the process ended. CallRaised: the function, or `load`,
                raised, or the result cannot be pickled.
        """
        message = pickle.dumps((args, kwargs))
        return self._use(lambda worker: worker.ask(message, self.timeout_s))

    def call_all(self, calls: Iterable[Sequence[Any]]) -> list[Any]:
        """Call the function with each of several argument lists, in all processes, and return the results in order.

        A call without a result has its WorkerError in the result's place.
        """

        def call(args: Sequence[Any]) -> Any:
            try:
                return self.call(*args)
            except WorkerError as error:
                return error

        with ThreadPoolExecutor(self.processes) as threads:
            return list(threads.map(call, calls))

    def close(self) -> None:
        """Kill the idle workers; the next call starts others."""
        if self._owner == os.getpid():
            workers = []
            while not self._idle.empty():
                workers.append(self._idle.get_nowait())
            for worker in workers:
                if worker is not None:
                    worker.kill()
                self._idle.put(None)

    def _use(self, ask: Callable[[_Worker], Any]) -> Any:
        if self._owner != os.getpid():  # a fork: the workers are its parent's
            self._reset()
        worker = self._idle.get()
        try:
            if worker is None or not worker.is_alive():
                worker = _Worker(self.load, self.start_timeout_s)
            return ask(worker)
        except CallRaised:
            raise
        except BaseException:  # a timeout, a death, or Ctrl-C in the middle of a call
            if worker is not None:
                worker.kill()
            worker = None
            raise
        finally:
            self._idle.put(worker)

    def __getstate__(self) -> dict[str, Any]:
        names = ("load", "processes", "timeout_s", "start_timeout_s")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __del__(self) -> None:
        if hasattr(self, "_idle"):
            self.close()


@atexit.register
def _close_pools() -> None:
    """Close all pools while the interpreter still has its modules; `__del__` may run after that."""
    for pool in list(_pools):
        pool.close()


class _Worker:
    """One process and the connection to it."""

    def __init__(self, load: Callable[[], Callable[..., Any]], timeout_s: float):
        self.connection, end = Pipe()
        printed, output = os.pipe()
        program = _START.format(path=sys.path, end=end.fileno(), parent=os.getpid())
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[end.fileno()],
            start_new_session=True,  # Ctrl-C ends a run after its iteration, which still needs the worker
        )
        end.close()
        os.close(output)
        show_output(printed)
        try:
            self.ask(pickle.dumps(load), timeout_s, "the start of the worker")
        except BaseException:
            self.kill()
            raise

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, message: bytes, timeout_s: float, what: str = "a call") -> Any:
        """Send a message and return the answer."""
        try:
            self.connection.send_bytes(message)
            if not poll_awake(self.connection, timeout_s, self._check_alive):
                raise CallTimedOut(f"{what} took longer than {timeout_s:g} s")
            outcome, *value = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            ended = self._read_exit()
            if self.process.poll() == -signal.SIGPROF:  # of a timer of processor time: `mmrl.rewards.limits`
                raise CallTimedOut(f"{what} used more than its limit of processor time") from error
            raise WorkerDied(f"the process ended: {ended}") from error
        if outcome == "raised":
            raise CallRaised(*value)
        return value[0]

    def _check_alive(self) -> None:
        if not self.is_alive() and not self.connection.poll():  # its own children may hold the connection
            raise EOFError

    def _read_exit(self) -> str:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if code >= 0:
            return f"exit status {code}"
        hint = " (SIGKILL often means that memory ran out)" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}"

    def kill(self) -> None:
        """Kill the process and the processes that it started."""
        self.connection.close()
        kill_tree(self.process.pid)
        self.process.wait()


def serve(end: int, parent: int) -> None:
    """Answer calls until the parent is gone, and end with all that the function started: the main loop of a worker."""
    os.set_inheritable(end, False)
    adopt_orphans()
    end_with_parent(parent)
    try:
        _answer(end)
    finally:
        end_tree()


def _answer(end: int) -> None:
    """Answer calls until the other end of the connection is gone."""
    connection = Connection(end)
    function: Any = None
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            request = pickle.loads(message)
            if function is None:
                function, value = request(), None
            else:
                value = function(*request[0], **request[1])
            answer = pickle.dumps(("ok", value))
        except BaseException as error:  # SystemExit in a function ends only the call
            answer = pickle.dumps(("raised", type(error).__name__, str(error), traceback.format_exc()))
        connection.send_bytes(answer)
