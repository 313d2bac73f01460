"""Processor time of a call, on a machine that others use too."""

import time
from collections.abc import Callable

ATTEMPTS = 3
"""A pause for the garbage of other tests, or a core that is shared, may slow one attempt; a call that is slow by itself
is slow in all."""


def fits(call: Callable[[], object], seconds: float) -> bool:
    """Whether a call takes less processor time than this in one of its attempts."""
    for _ in range(ATTEMPTS):
        start = time.process_time()
        call()
        if time.process_time() - start < seconds:
            return True
    return False
