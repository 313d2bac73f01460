"""Memory of this host that can be had."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory() -> int:
    """Bytes of host memory that can be had without swapping, within the limit of a container.

    Without /proc, as on macOS, those of the whole host.
    """
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    stated = Path("/proc/meminfo")
    if stated.is_file():
        lines = stated.read_text().splitlines()
        sizes += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and limit.read_text().strip().isdigit():
        sizes.append(int(limit.read_text()) - int(used.read_text()))
    return min(sizes)
