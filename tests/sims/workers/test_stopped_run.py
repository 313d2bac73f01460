"""A run that is stopped and goes on judges no worker by the time in which it slept itself."""

import os
import signal
import subprocess
import time

import pytest

from tests.quick_python import quick_python
from tests.tiny_recipes import ROOT

pytest.importorskip("msgpack")

LIMIT = 2.4  # seconds of a call and of a step
PROGRAM = f"""
import sys, threading
import numpy as np
from mmrl.rewards.worker import WorkerPool
from sims.workers.process import Program
from sims.workers.vector import WorkerVectorEnv
from tests.sims.workers.waiting import load_wait
folder = sys.argv[1]
pool = WorkerPool(load_wait, timeout_s={LIMIT})
pool.start()
program = Program({{"_target_": "tests.sims.workers.waiting:Guest", "folder": folder}}, timeout_s={LIMIT})
env = WorkerVectorEnv(program, 1, 1)
env.reset(seed=[0])
worker = pool._idle.get()
pool._idle.put(worker)
print(worker.process.pid, env.pool.workers[0].process.pid, flush=True)
for number in range(2):
    results = []
    call = threading.Thread(target=lambda: results.append(pool.call(folder, f"call {{number}}")))
    call.start()
    _, rewards, _, truncated, infos = env.step(np.array([number]))
    call.join()
    print(number, results, rewards.tolist(), truncated.tolist(), infos, flush=True)
env.close()
"""


def wait_until(condition, seconds=30):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def is_stopped(number):
    with open(f"/proc/{number}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the state of a process is read from /proc")
def test_a_run_that_was_stopped_goes_on_with_its_workers(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [quick_python(), "-c", PROGRAM, str(tmp_path)]
    with (tmp_path / "errors").open("w") as errors:
        ran = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=ROOT)
    workers = [int(number) for number in ran.stdout.readline().split()]
    # the workers answer while the run is stopped; then the workers are stopped with it, as in a container that pauses
    for number, stopped in enumerate(([ran.pid], [ran.pid, *workers])):
        names = [f"call {number}", f"step {number}"]
        wait_until(lambda: all((tmp_path / f"{name} began").exists() for name in names))  # noqa: B023
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        wait_until(lambda: all(map(is_stopped, stopped)))  # noqa: B023
        for name in names:
            (tmp_path / f"{name} may end").touch()
        time.sleep(1.25 * LIMIT)  # more than the limit
        for process in stopped:
            os.kill(process, signal.SIGCONT)
        line = ran.stdout.readline().strip()
        assert line == f"{number} ['call {number}'] [1.0] [False] {{}}", (tmp_path / "errors").read_text()
    assert ran.wait(30) == 0
