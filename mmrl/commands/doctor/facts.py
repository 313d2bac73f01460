"""What a process of a run finds around it: versions, configuration, device, memory, run folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

import mmrl
from mmrl.distributed.free_memory import available_memory
from mmrl.distributed.ports import try_port
from mmrl.runs.versions import find_version

PACKAGES = ("mmrl", "torch", "lightning", "transformers", "numpy")
"""Packages whose versions must be the same in all processes."""
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Facts:
    """Facts of one rank, which can be written as JSON; sizes are bytes."""

    rank: int
    host: str
    config: str  # resolved, as YAML
    run_dir: str
    source: str  # hash of mmrl's own modules
    device: str  # cpu, or cuda:0
    sees_run_dir: bool = True
    device_id: str | None = None  # of a GPU, the same in all processes
    devices: int = 0  # GPUs that the process sees
    free: int = 0  # of the GPU
    total: int = 0
    host_free: int = 0
    resident: int = 0  # memory of this process
    shared_free: int = 0  # of /dev/shm
    port_problem: str = ""  # of ports that the run will listen at
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Facts:
        return cls(**json.loads(text))


def collect_facts(rank: int, config: str, run_dir: str, device: torch.device, ports: tuple[int, ...] = ()) -> Facts:
    """Collect the facts of this process.

    Args:
        config: the resolved configuration as YAML.
        run_dir: folder of the run.
        device: of this process.
        ports: that servers of this process will listen at.
    """
    on_gpu = device.type == "cuda"
    free, total = torch.cuda.mem_get_info(device) if on_gpu else (0, 0)
    return Facts(
        rank=rank,
        host=socket.gethostname(),
        config=config,
        run_dir=str(Path(run_dir).absolute()),
        source=hash_source(),
        device=str(device),
        device_id=str(torch.cuda.get_device_properties(device).uuid) if on_gpu else None,
        devices=torch.cuda.device_count() if on_gpu else 0,
        free=free,
        total=total,
        host_free=available_memory(),
        resident=resident_memory(),
        shared_free=shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0,
        port_problem=next((f"port {port} is taken" for port in ports if try_port(port) is not None), ""),
        versions=collect_versions(),
    )


def collect_versions() -> dict[str, str]:
    """Return the versions that must be the same in all processes."""
    versions = {"python": platform.python_version()} | {name: find_version(name) or "none" for name in PACKAGES}
    if torch.cuda.is_available():
        versions |= {"CUDA": str(torch.version.cuda), "NCCL": ".".join(map(str, torch.cuda.nccl.version()))}
    return versions


def hash_source() -> str:
    """Hash mmrl's own modules: two checkouts of one version may differ."""
    folder = Path(mmrl.__file__).parent
    hashed = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        hashed.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return hashed.hexdigest()[:12]


def is_visible(path: str) -> bool:
    """Whether this process sees a file."""
    return Path(path).is_file()


def resident_memory() -> int:
    """Bytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
