"""What happens to a server's processes, with a stand-in for the server: nothing outlives the trainer."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmrl.engines.vllm.servers.process import ServerProcess

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")

PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); {end}"
STAYS = [sys.executable, "-c", PARENT.format(end="time.sleep(600)")]
STUBBORN = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
TRAINER = """
import signal, sys, time
from pathlib import Path
from mmrl.engines.vllm.servers.process import ServerProcess
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
server = ServerProcess({command!r}, Path({log!r}))
print(server.group, flush=True)
time.sleep(600)
"""


def group(number: int) -> list[int]:
    """The living processes of a process group."""
    result = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, pgrp = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if entry.name.isdigit() and int(pgrp) == number and state != "Z":
            result.append(int(entry.name))
    return result


def until(condition, seconds=30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_stopping_ends_the_server_and_its_children(tmp_path):
    server = ServerProcess(STAYS, tmp_path / "log")
    assert until(lambda: len(group(server.group)) == 3) and server.alive  # the guard, the server, its child
    server.stop()
    assert not group(server.group) and not server.alive


def test_killing_does_not_ask(tmp_path):
    server = ServerProcess(STUBBORN, tmp_path / "log")
    assert until(lambda: len(group(server.group)) == 2)
    server.stop(kill=True)
    assert until(lambda: not group(server.group))  # a process that is killed takes a moment to be gone


def test_children_end_with_a_server_that_is_killed(tmp_path):
    server = ServerProcess(STAYS, tmp_path / "log")
    assert until(lambda: len(group(server.group)) == 3)
    main = next(p for p in group(server.group) if parent(p) == server.group)
    os.kill(main, signal.SIGKILL)
    assert until(lambda: not group(server.group))
    server.stop()
    assert "ended with status -9" in (tmp_path / "log").read_text()


def test_stopping_ends_what_a_killed_guard_left_behind(tmp_path):
    server = ServerProcess(STAYS, tmp_path / "log")
    assert until(lambda: len(group(server.group)) == 3)
    os.kill(server.group, signal.SIGKILL)
    assert until(lambda: not server.alive)
    server.stop()
    assert until(lambda: not group(server.group))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_the_trainer(tmp_path, end):
    code = TRAINER.format(command=STAYS, log=str(tmp_path / "log"))
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    number = int(trainer.stdout.readline())
    assert until(lambda: len(group(number)) == 3)
    trainer.send_signal(end)
    trainer.wait(30)
    assert until(lambda: not group(number))


def test_the_rank_of_a_trainer_is_not_the_servers(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    show = [sys.executable, "-c", "import os; print(os.environ.get('RANK'), os.environ['MINE'])"]
    server = ServerProcess(show, tmp_path / "log", {"MINE": "yes"})
    assert until(lambda: not server.alive)
    server.stop()
    assert (tmp_path / "log").read_text().startswith("None yes")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
