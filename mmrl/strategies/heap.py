"""Heap of a process on a CPU: return the memory of freed tensors to the system."""

from __future__ import annotations

import ctypes
import platform

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
