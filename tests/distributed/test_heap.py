"""Memory of freed allocations returns to the system, by a setting of the heap or on call."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.distributed.heap import _find_trim
from tests.quick_python import quick_python

# blocks that are freed while small allocations behind each of them live on; the first free raises glibc's threshold
PROGRAM = """
import sys
from mmrl.distributed.heap import return_freed_memory

def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) >> 10

if sys.argv[1] == "set":
    assert return_freed_memory()
del (first := [bytearray(30 << 20)])[0]
before = resident()
blocks, small = [], []
for _ in range(20):
    blocks.append(bytearray(8 << 20))
    small.append(bytearray(4096))
del blocks
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
@pytest.mark.parametrize(("word", "mebibytes"), [("set", range(8)), ("leave", range(120, 200))])
def test_gaps_between_allocations_are_returned(word, mebibytes):
    done = subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, text=True, check=True)
    assert int(done.stdout) in mebibytes


# a process of its own: the settings of glibc's heap belong to the process, and sharded training changes them
ENGINE_PROGRAM = """
import gc, json
from pathlib import Path

import torch

from mmrl.engines.local import LocalEngine
from mmrl.distributed.heap import release_free_memory
from mmrl.policies.text.policy import TextPolicy

MIB = 2**20

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / MIB

def leave_gaps():  # 402 MiB of free memory between small tensors, which are returned
    torch.ones(31 * MIB // 4)  # when glibc frees it, smaller tensors come from the heap
    small, large = [], []
    for _ in range(134):
        large.append(torch.ones(3 * MIB // 4))
        small.append(torch.ones(32_768))  # 128 KiB
    del large
    gc.collect()
    return small

def measure(action):
    small = leave_gaps()
    before = resident()
    action()
    assert all(bool((tensor == 1).all()) for tensor in small)
    return before - resident()

def measure_sync(hidden_size):
    sizes = {"hidden_size": hidden_size, "intermediate_size": 4 * hidden_size, "num_hidden_layers": 7}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    policy, engine = TextPolicy(config={"model_type": "qwen2", **sizes, **heads}), LocalEngine()
    engine.sync(policy, 0)
    return measure(lambda: engine.sync(policy, 1))

print(json.dumps([measure(release_free_memory), measure_sync(512), measure_sync(64)]))
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or _find_trim() is None, reason="glibc's malloc_trim, on Linux"
)
def test_free_memory_is_returned_on_call_and_when_a_large_policy_is_synchronised(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(ENGINE_PROGRAM)
    done = subprocess.run([quick_python(), str(path)], capture_output=True, text=True, check=True)
    on_call, large, small = json.loads(done.stdout)
    assert on_call > 300 and large > 300  # MiB, of the 402 that are free
    assert small < 100
