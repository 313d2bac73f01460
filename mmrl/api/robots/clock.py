"""Clocks of a robot's control loop: that of the machine, and a simulated one that only advances when it is asked to."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod


class Clock(ABC):
    """Time in seconds from some moment on."""

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def sleep_until(self, moment: float) -> None:
        """Return at `moment`, or at once if it is past."""


class SystemClock(Clock):
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, moment: float) -> None:
        if (seconds := moment - self.now()) > 0:
            time.sleep(seconds)


class SimulatedClock(Clock):
    """A clock in which all computations take no time: it advances by sleeping alone, and sleeping takes no time.

    What is played with it does not depend on the machine, and injected delays are exact.
    """

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep_until(self, moment: float) -> None:
        self._now = max(self._now, moment)
