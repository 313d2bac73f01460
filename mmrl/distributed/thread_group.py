"""A process group for a thread that samples beside the learner.

Two threads that use one group would interleave their collectives, in another order on each process. The collecting
threads of all processes therefore have a gloo group of their own. All their messages are of one kind, a gather of plain
objects: so a process that fails can tell the others in the place of its next message, and one that waits for a message
can stop.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_LOOK = 0.002  # seconds between two looks at a message that has not come
_current = threading.local()


class RankFailure(RuntimeError):
    """Another process failed while it sampled; the message has its rank and its reason."""


class ThreadGroup:
    """Collectives of one thread of each process, over gloo; values are in host memory.

    Building one is collective over all processes. The threads make the same calls in the same order.

    Args:
        timeout: of one message.
        stopped: set when the run ends; a thread that waits for a message then raises InterruptedError.
    """

    def __init__(self, timeout: timedelta, stopped: threading.Event):
        self.rank, self.size, self._stopped = dist.get_rank(), dist.get_world_size(), stopped
        self._group = dist.new_group(backend="gloo", timeout=timeout, group_desc="sampling")

    @contextmanager
    def use(self) -> Iterator[None]:
        """Send the collectives of this thread over this group inside the context. Collective.

        Raises:
            RankFailure: another process raised an exception inside its context.
            InterruptedError: the run has ended.
        """
        _current.group = self
        try:
            yield
            self.gather(())  # every process got to the end
        except (RankFailure, InterruptedError):
            raise
        except BaseException as error:
            self._exchange(f"{type(error).__name__}: {error}", ())
            raise
        finally:
            _current.group = None

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """Gather the items of all processes, in rank order. Collective."""
        parts = self._exchange(None, items)
        if failed := [(rank, text) for rank, (text, _) in enumerate(parts) if text is not None]:
            rank, text = failed[0]
            raise RankFailure(f"process {rank} failed while it sampled beside the learner: {text}")
        return [item for _, part in parts for item in part]

    def total(self, value: Tensor) -> Tensor:
        """Sum a tensor over all processes; the result is on its device. Collective."""
        parts = self.gather([value.detach().cpu()])
        return torch.stack(parts).sum(0, dtype=value.dtype).to(value.device)

    def close(self) -> None:
        """Leave the group, without communication; messages that no process answers any more are dropped."""
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _exchange(self, error: str | None, items: Sequence[Any]) -> list[tuple[str | None, Sequence[Any]]]:
        """Gather the error and the items of every process."""
        message = torch.frombuffer(bytearray(pickle.dumps((error, list(items)))), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        self._wait(dist.all_gather(lengths, torch.tensor([len(message)]), group=self._group, async_op=True))
        longest = int(max(lengths))
        padded = torch.cat([message, message.new_zeros(longest - len(message))])
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        self._wait(dist.all_gather(parts, padded, group=self._group, async_op=True))
        return [pickle.loads(part[: int(length)].numpy().tobytes()) for part, length in zip(parts, lengths)]

    def _wait(self, work: Any) -> None:
        """Wait for a message until the run ends; gloo itself cannot be interrupted."""
        while not work.is_completed():
            if self._stopped.is_set():
                raise InterruptedError("the run has ended")
            time.sleep(_LOOK)
        work.wait()  # raises what went wrong


def current_group() -> ThreadGroup | None:
    """Return the group of the calling thread; None where it is that of the learner."""
    return getattr(_current, "group", None)


def refuse_thread(action: str) -> None:
    """Raise RuntimeError in a thread that has a group of its own.

    Args:
        action: a collective of sharded weights, whose group is that of the learner.
    """
    if current_group() is not None:
        raise RuntimeError(
            f"{action} is a collective of the learner's process group, and the thread that samples beside learning "
            "may not take part in it; use data.staleness=0"
        )
