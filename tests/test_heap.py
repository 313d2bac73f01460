"""Memory that the process returns to the operating system."""

import gc
from pathlib import Path

import pytest
import torch

from mmrl.engines.local import LocalEngine
from mmrl.heap import _find_trim, release_free_memory
from mmrl.policies.text.policy import TextPolicy

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or _find_trim() is None, reason="glibc's malloc_trim, on Linux"
)
MIB = 2**20


def resident() -> float:
    """Resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / MIB


def leave_gaps() -> list[torch.Tensor]:
    """Leave about 400 MiB of free memory between small tensors, which are returned."""
    torch.ones(31 * MIB // 4)  # when glibc frees it, smaller tensors come from the heap
    small, large = [], []
    for _ in range(134):
        large.append(torch.ones(3 * MIB // 4))
        small.append(torch.ones(32_768))  # 128 KiB
    del large
    gc.collect()
    return small


def test_free_memory_between_tensors_is_returned():
    small = leave_gaps()
    before = resident()
    release_free_memory()
    assert before - resident() > 100
    assert all(bool((tensor == 1).all()) for tensor in small)


def policy(hidden_size: int) -> TextPolicy:
    sizes = {"hidden_size": hidden_size, "intermediate_size": 4 * hidden_size, "num_hidden_layers": 7}
    return TextPolicy(config={"model_type": "qwen2", **sizes, "num_attention_heads": 4, "num_key_value_heads": 4})


@pytest.mark.parametrize(("hidden_size", "returned"), [(512, True), (64, False)])
def test_the_engine_returns_what_learning_left_for_large_policies_only(hidden_size, returned):
    large = policy(hidden_size)
    engine = LocalEngine()
    engine.sync(large, 0)
    small = leave_gaps()
    before = resident()
    engine.sync(large, 1)
    assert (before - resident() > 100) == returned
    assert len(small) == 134
