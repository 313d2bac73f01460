"""Guests whose sizes are known without their Python."""

from __future__ import annotations

from dataclasses import dataclass

from sims.workers.guest import GuestSim
from sims.workers.python import find_python
from sims.workers.sim import check_workers


@dataclass(frozen=True)
class SizedGuestSim(GuestSim):
    """Base class of guests whose `sizes` starts no process: configurations are read where the environment is missing.

    `make` raises there, with the target that makes the environment.
    """

    def __post_init__(self) -> None:
        check_workers(self.workers, self.timeout_s)
        try:
            find_python(self.python, self.environment, self.make_target)
        except ValueError:
            if self.python is not None:
                raise
            return
        super().__post_init__()
