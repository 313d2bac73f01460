"""Heap of a process on a CPU: return the memory of freed tensors to the system."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h


def return_freed_memory(threshold: int = 1 << 18) -> bool:
    """Give allocations from `threshold` bytes on a mapping of their own, which `free` returns to the system.

    glibc keeps freed allocations of up to 32 MiB in its heap, where the tensors that live longer leave gaps. Sharded
    training allocates and frees gathered weights and whole gradients again and again, and its resident memory became
    1.5 to 2 times that of its tensors. Allocating costs page faults, which are small beside the computation.

    Returns: whether the C library is glibc and took the setting.
    Source: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(MMAP_THRESHOLD, threshold) and mallopt(TRIM_THRESHOLD, 2 * threshold))


def release_free_memory() -> None:
    """Return the free pages of glibc's heap to the system; nothing happens with other C libraries.

    torch's CPU allocator is malloc. Tensors below 32 MiB that are freed stay with the process, and phases that need
    tensors of other sizes cannot use the gaps: sampling, scoring and optimiser state of a 135 M model then hold 1.3 GiB
    more than they need. No number changes.
    """
    trim = _find_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _find_trim() -> Callable[[int], int] | None:
    """Find glibc's malloc_trim; None if the C library has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # macOS, musl; Windows
        return None
