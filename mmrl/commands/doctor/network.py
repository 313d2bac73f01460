"""All-reduce in the process groups of a run: that the sum is right, and its bandwidth."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from mmrl.distributed import parallel

BYTES = {"cuda": 64 << 20, "cpu": 4 << 20}
"""Size of the tensor that is summed."""
REPEATS = 5


def measure_network(trainer: Any, store: dist.Store, seconds: float) -> str:
    """Join the process group, build the mesh, and time an all-reduce in each of its groups. Collective.

    Returns JSON: {"backend", "groups": {name: [ranks, bytes, seconds]}}, or {"error"}.
    """
    try:
        backend = parallel.join_group(trainer, store, seconds)
        device, groups = parallel.root_device(trainer), {}
        for name, group in parallel.process_groups(trainer).items():
            groups[name] = [dist.get_world_size(group), *time_all_reduce(device, group, seconds)]
        dist.destroy_process_group()
        return json.dumps({"backend": backend, "groups": groups})
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return json.dumps({"error": text[:300]})


def time_all_reduce(device: torch.device, group: Any, seconds: float) -> tuple[int, float]:
    """Sum a tensor over a group; return its bytes and the median seconds. Raises where the sum is wrong."""
    ranks = dist.get_world_size(group)
    tensor = torch.empty(BYTES[device.type] // 4, device=device)
    expected = ranks * (ranks + 1) / 2
    durations = []
    for _ in range(1 + REPEATS):
        tensor.fill_(dist.get_rank(group) + 1.0)
        _wait_for(device)
        start = time.perf_counter()
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None
        work.wait(timedelta(seconds=seconds))
        _wait_for(device)
        durations.append(time.perf_counter() - start)
        if not bool((tensor == expected).all()):
            raise RuntimeError(f"all-reduce of {ranks} ranks gave {float(tensor[0])} in place of {expected}")
    return tensor.nbytes, sorted(durations[1:])[REPEATS // 2]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
