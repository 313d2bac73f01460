"""Memory of this host that can be had."""

from __future__ import annotations

from pathlib import Path


def available_memory() -> int:
    """Bytes of host memory that can be had without swapping, within the limit of a container."""
    sizes = []
    with open("/proc/meminfo") as file:
        sizes += [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable")]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and limit.read_text().strip().isdigit():
        sizes.append(int(limit.read_text()) - int(used.read_text()))
    return min(sizes)
