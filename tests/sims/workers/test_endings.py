"""Whatever a simulator's process started ends with it, after every kind of end of the process and of the run."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest

from sims.gym import GymSim
from tests.quick_python import quick_python
from tests.sims.workers.littering import GO, HANG
from tests.tiny_recipes import ROOT

pytest.importorskip("msgpack")
from sims.workers import WorkerSim

SIM = "WorkerSim(GymSim('tests.sims.workers.littering:Littering-v0', kwargs={'daemon': DAEMON}), 1, timeout_s=1.0)"


def wait_until_gone(number, seconds=8):
    """Whether a process has ended within a time."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.kill(number, signal.SIGKILL)
    return False


def start(daemon):
    sim = GymSim("tests.sims.workers.littering:Littering-v0", kwargs={"daemon": daemon})
    env = WorkerSim(sim, 1, timeout_s=1.0).make(1)
    observation, _ = env.reset(seed=[0])
    return env, int(observation[0, 0])


@pytest.mark.parametrize(
    ("end", "daemon"),
    [  # the kernel alone knows the daemons of a process that somebody else killed
        *((end, daemon) for end in ("close", "SIGSTOP", "hang") for daemon in (False, True)),
        ("SIGKILL", False),
    ],
)
def test_processes_of_a_simulator_end_with_its_process(end, daemon):
    env, number = start(daemon)
    if end in ("SIGKILL", "SIGSTOP"):
        os.kill(env.pool.workers[0].process.pid, signal.Signals[end])
    if end != "close":
        env.step(np.array([HANG if end == "hang" else GO]))
        env.reset(seed=[0])  # on a new process
    else:
        env.close()
    assert wait_until_gone(number)
    env.close()


PROGRAM = f"""
import os, signal, sys
import numpy as np
from sims.gym import GymSim
from sims.workers import WorkerSim
env = {SIM}.make(1)
observation, _ = env.reset(seed=[0])
print(env.pool.workers[0].process.pid, int(observation[0, 0]), flush=True)
if HANG:
    env.pool.send(0, "step", actions=np.array([1]), watch=False)
if END == "raise":
    raise RuntimeError
os.kill(os.getpid(), END)
"""


@pytest.mark.parametrize(
    ("end", "hang", "daemon"),
    [(int(signal.SIGKILL), True, True), (int(signal.SIGTERM), False, False), ("raise", True, False)],
)
def test_processes_of_a_simulator_end_with_the_run(end, hang, daemon, tmp_path):
    program = PROGRAM.replace("DAEMON", str(daemon)).replace("HANG", str(hang)).replace("END", repr(end))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [quick_python(), "-c", program]
    with (tmp_path / "errors").open("w") as errors:
        ran = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=ROOT)
        numbers = [int(number) for number in ran.stdout.readline().split()]
        assert ran.wait(30) != 0
    assert [wait_until_gone(number) for number in numbers] == [True, True], (tmp_path / "errors").read_text()
