"""Memory of freed allocations returns to the system."""

import platform
import subprocess
import sys

import pytest

# blocks that are freed while small allocations behind each of them live on; the first free raises glibc's threshold
PROGRAM = """
import sys
from mmrl.strategies.heap import return_freed_memory

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
