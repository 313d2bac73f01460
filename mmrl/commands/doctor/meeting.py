"""Messages between the processes of a run before they have a process group: a store at rank 0."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from subprocess import Popen

from torch.distributed import PrefixStore, Store, TCPStore

from mmrl.core.errors import ConfigError
from mmrl.distributed.ports import try_port

POLL = 0.05  # seconds
GRACE = 5.0  # seconds that rank 0 stays for the others


class Meeting:
    """Store to which every rank writes and which rank 0 reads.

    Rank 0 listens at the address and port of the run's process group, unless torchrun's agent does already.

    Args:
        rank: of this process.
        size: number of processes.
        place: address and port.
        seconds: that a rank is waited for.
        started: processes that rank 0 has started, whose end is noticed.
    """

    def __init__(self, rank: int, size: int, place: tuple[str, int], seconds: float, started: Sequence[Popen] = ()):
        self.rank, self.size, self.seconds, self.started = rank, size, seconds, started
        host, port = place
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        listens = rank == 0 and not agent
        if listens and try_port(port) is not None:
            raise ConfigError(
                f"rank 0: port {port} of {socket.gethostname()}, at which the ranks meet, is taken; end the process "
                "that listens there, or set MASTER_PORT to a free port on every node"
            )
        try:
            store = connect(host, port, listens, seconds)
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise ConfigError(
                f"rank {rank} on {socket.gethostname()} cannot meet rank 0 at {host}:{port} within {seconds:.0f} "
                f"seconds ({reason}); let the nodes reach this port, or set MASTER_ADDR and MASTER_PORT on every node"
            ) from error
        self.store: Store = PrefixStore("mmrl-doctor", store)

    def tell(self, name: str, text: str) -> None:
        """Write this rank's text under a name."""
        self.store.set(f"{name}/{self.rank}", text)

    def ask(self, name: str, rank: int = 0) -> str:
        """Return another rank's text; waits for it."""
        return self.read(name, [rank])[0]

    def read(self, name: str, ranks: Sequence[int] | None = None) -> list[str]:
        """Return the texts of ranks, of all by default; waits for them. Raises with the numbers of those missing."""
        members = list(range(self.size) if ranks is None else ranks)
        until = time.monotonic() + self.seconds
        missing = members
        while missing:
            missing = [rank for rank in missing if not self._has(f"{name}/{rank}")]
            ended = [process.returncode for process in self.started if process.poll()]
            if missing and (time.monotonic() > until or ended):
                why = f"ended with status {ended[0]}" if ended else f"did not answer within {self.seconds:.0f} seconds"
                raise ConfigError(
                    f"{name_ranks(missing)} {why} ({name}); see what it printed, and whether its node has the same "
                    "mmrl and reaches rank 0; --timeout SECONDS waits longer"
                )
            if missing:
                time.sleep(POLL)
        return [self.store.get(f"{name}/{rank}").decode() for rank in members]

    def leave(self) -> None:
        """Let the others read what they wait for before the store ends with rank 0."""
        if self.rank > 0:
            self.tell("left", "")
            return
        until = time.monotonic() + GRACE
        while time.monotonic() < until and not all(self._has(f"left/{rank}") for rank in range(1, self.size)):
            time.sleep(POLL)

    def _has(self, key: str) -> bool:
        try:
            return self.store.check([key])
        except RuntimeError as error:
            raise ConfigError(f"rank {self.rank}: rank 0 has ended; see what it printed") from error


def connect(host: str, port: int, listens: bool, seconds: float) -> TCPStore:
    """Open torch's store; its own time limit does not hold where another program listens and never answers."""
    results: list[TCPStore | Exception] = []

    def open_store() -> None:
        try:
            results.append(TCPStore(host, port, None, listens, timedelta(seconds=seconds), wait_for_workers=False))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=open_store, daemon=True)
    thread.start()
    thread.join(seconds + 1)
    if not results:
        raise RuntimeError("another program listens there")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def name_ranks(ranks: Sequence[int]) -> str:
    """Name ranks: "rank 3", or "ranks 3, 4, 5 and 9 others"."""
    numbers = ", ".join(map(str, ranks[:4]))
    rest = f" and {len(ranks) - 4} others" if len(ranks) > 4 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}{rest}"
