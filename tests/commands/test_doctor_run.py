"""`mmrl doctor WORDS` with two processes: what it prints, and each failure of one rank as one line."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mmrl.__main__ import main
from mmrl.commands.doctor import facts as doctor_facts
from mmrl.commands.doctor import network
from mmrl.commands.doctor import run as doctor_run
from mmrl.commands.doctor.checks import check_devices, check_facts, check_shard_groups
from mmrl.commands.doctor.facts import Facts
from mmrl.commands.doctor.meeting import Meeting, name_ranks
from mmrl.commands.doctor.memory import check_gpus, check_hosts, check_shared
from mmrl.commands.doctor.run import find_ports
from mmrl.commands.plan import build_plan
from mmrl.commands.planning.planning import Given
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from tests.quick_python import quick_python
from tests.runs.processes import ranked, start
from tests.tiny_recipes import ROOT, TEXT, free_port, override

WORDS = override(TEXT, ["trainer.accelerator=cpu", "trainer.devices=2", "trainer.callbacks.warm_start.stages=null"])
NEEDED = 3 << 30
"""Bytes that two processes need, and some for what other tests start meanwhile."""


def test_lightning_starts_the_ranks(tmp_path):
    """As for `mmrl fit`; nothing is left in the run folder."""
    if doctor_facts.available_memory() < NEEDED:
        pytest.skip("the doctor would find the memory of this host too small, for other processes hold it")
    words = ["doctor", *WORDS, "strategy=fsdp2", f"run_dir={tmp_path}/run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [quick_python(), "-m", "mmrl", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    marks = {line[4:26].strip(): line[:4].strip() for line in done.stdout.split("\n\n")[0].splitlines()}
    names = {"versions", "source", "run_dir", "configuration", "devices", "ports", "process group", "mesh"}
    assert names | {"all-reduce, all ranks", "host memory", "shared memory"} == set(marks)
    assert set(marks.values()) == {"ok"}
    assert "2 ranks met at 127.0.0.1:" in done.stdout and "1 copy of the weights, sharded over 2 ranks" in done.stdout
    assert "processes  1 x 2 cpu, fsdp2" in done.stdout and "every rank" in done.stdout
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- failures of one rank


class Disk(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def old_lightning(folder: Path) -> None:
    found = doctor_facts.find_version
    doctor_facts.find_version = lambda name: "2.0.0" if name == "lightning" else found(name)


def other_source(folder: Path) -> None:
    doctor_facts.hash_source = lambda: "0123456789ab"


def small_shared_memory(folder: Path) -> None:
    real = shutil.disk_usage
    full = Disk(64 << 20, (64 << 20) - 1000, 1000)
    doctor_facts.shutil.disk_usage = lambda path: full if str(path) == "/dev/shm" else real(path)


def other_folder(folder: Path) -> None:
    os.chdir(folder)


def blind(folder: Path) -> None:
    doctor_run.is_visible = lambda path: False


def no_network(folder: Path) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no route to host")

    network.time_all_reduce = fail


def ranked_after(change: Callable[[Path], None] | None, folder: Path, *given: Any) -> None:
    doctor_facts.available_memory = lambda: 64 << 30  # what other processes leave of this host is not the subject
    if change is not None:
        change(folder)
    ranked(*given)


FAILURES = {
    # name: changes of rank 1, its further words, words of both, and what rank 0 says
    "version": (old_lightning, [], [], "rank 1 on HOST has lightning 2.0.0, and rank 0 has"),
    "source": (other_source, [], [], "rank 1 on HOST runs other modules of mmrl (0123456789ab) than rank 0"),
    "words": (None, ["seed=7"], [], "rank 1 on HOST has 'seed_everything: 7' where rank 0 has 'seed_everything: 0'"),
    "folder": (other_folder, [], ["run_dir=runs/mine"], "rank 1 on HOST would write into"),
    "storage": (blind, [], [], "rank 1 on HOST does not see what rank 0 writes into"),
    "shared memory": (
        small_shared_memory,
        [],
        ["engine=vllm_server"],
        "ranks 0, 1 on HOST: /dev/shm has 0.0 MiB free, and",
    ),
    "network": (no_network, [], [], "rank 1: no route to host"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_one_rank_is_one_line_that_names_it(name, tmp_path):
    change, own, both, expected = FAILURES[name]
    words = override([*WORDS, f"run_dir={tmp_path}"], both)
    port = free_port()
    logs = [tmp_path / f"rank{rank}.log" for rank in range(2)]
    started = [
        start(
            ranked_after,
            change if rank else None,
            tmp_path,
            ["doctor", *words, *(own if rank else []), "--timeout", "20"],
            logs[rank],
            rank,
            2,
            port,
        )
        for rank in range(2)
    ]
    for process in started:
        process.join(100)
        process.kill()
    text = logs[0].read_text()
    lines = [line for line in text.splitlines() if line.startswith("mmrl doctor: ")]
    assert [process.exitcode for process in started] == [2, 0], text + logs[1].read_text()
    assert len(lines) == 1 and expected.replace("HOST", socket.gethostname()) in lines[0], text
    assert "Traceback" not in text + logs[1].read_text()
    assert text.count("FAIL") == 1


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        logs = [tmp_path / f"rank{rank}.log" for rank in range(2)]
        words = ["doctor", *WORDS, f"run_dir={tmp_path}", "--timeout", "2"]
        started = [start(ranked, words, log, rank, 2, port) for rank, log in enumerate(logs)]
        for process in started:
            process.join(60)
            process.kill()
    texts = [log.read_text().splitlines() for log in logs]
    assert [process.exitcode for process in started] == [2, 2]
    assert len(texts[0]) == 1 and f"rank 0: port {port} of {socket.gethostname()}" in texts[0][0]
    (line,) = [line for line in texts[1] if line.startswith("mmrl doctor")]
    assert f"rank 1 on {socket.gethostname()} cannot meet rank 0 at 127.0.0.1:{port} within 2 seconds" in line


def test_a_rank_that_does_not_come(tmp_path):
    log = tmp_path / "rank0.log"
    process = start(ranked, ["doctor", *WORDS, f"run_dir={tmp_path}", "--timeout", "2"], log, 0, 2, free_port())
    process.join(60)
    process.kill()
    assert process.exitcode == 2
    assert "mmrl doctor: rank 1 did not answer within 2 seconds" in log.read_text()


def test_a_started_process_that_ends_is_noticed():
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    meeting = Meeting(0, 2, ("127.0.0.1", free_port()), 60.0, [ended])
    with pytest.raises(ConfigError, match="rank 1 ended with status 3"):
        meeting.read("facts", [1])


# ---------------------------------------------------------------- placement, with made-up devices


def cluster(hosts: int = 2, devices: int = 8) -> list[Facts]:
    """Facts of the ranks of a cluster."""
    alike = Facts(0, "", "seed: 0", "/shared/run", "abc", "", versions={"torch": "2.6"}, devices=devices)
    sizes = {"free": 70 << 30, "total": 80 << 30, "host_free": 900 << 30, "shared_free": 400 << 30}
    return [
        replace(alike, rank=rank, host=f"node{rank // devices}", device=f"cuda:{rank % devices}", **sizes)
        for rank in range(hosts * devices)
    ]


def with_ids(facts: list[Facts]) -> list[Facts]:
    return [replace(each, device_id=f"GPU-{each.host}-{each.device}") for each in facts]


def test_ranks_of_a_cluster_are_right():
    facts = with_ids(cluster())
    assert all(finding.good for finding in check_facts(facts))
    assert check_devices(facts).found == "node0: 8 x cuda; node1: 8 x cuda"
    assert check_shard_groups(facts, 2, 8).found == "2 copies of the weights, sharded over 8 ranks"
    assert "copies span hosts: strategy.shard_size=8" in check_shard_groups(facts, 1, 16).found


def test_two_ranks_on_one_gpu_are_refused():
    facts = with_ids(cluster())
    facts[11] = replace(facts[11], device_id=facts[8].device_id, devices=1)
    found = check_devices(facts)
    assert not found.good and "rank 11 on node1 has the GPU of rank 8 (GPU-node1-cuda:0)" in found.found
    assert "this one sees 1" in found.found


def test_a_node_without_gpus_is_refused():
    facts = [replace(each, device="cpu") if each.host == "node1" else each for each in cluster()]
    found = check_devices(facts)
    assert not found.good and "ranks 8, 9, 10, 11 and 4 others on node1 has cpu, and rank 0 cuda:0" in found.found


@pytest.fixture(scope="module")
def planned():
    words = [
        *("recipe=grpo", "policy=tiny_text", "trainer.devices=8", "trainer.num_nodes=2", "strategy=fsdp2"),
        *("engine=vllm_server", 'engine.devices=["7"]', "engine.memory_share=0.5"),
    ]
    return build_plan(words, Given(memory=80 << 30))


def test_memory_of_every_rank_is_compared_with_the_plan(planned):
    facts = cluster()
    assert check_gpus(facts, planned).good and check_hosts(facts, planned).good and check_shared(facts, planned).good
    facts[11] = replace(facts[11], free=10 << 20)
    found = check_gpus(facts, planned)
    assert not found.good and found.found.startswith("rank 11 on node1: cuda:3 has 10.0 MiB free of 80.00 GiB, and")


def test_shared_memory_of_every_host_is_compared(planned):
    """Rank 0's host has the engine's files, the other only what NCCL needs."""
    files = planned.ranks[0].files
    assert files > 3 * planned.size.parameter_bytes and planned.ranks[1].files == 0
    nccl = 8 * (32 << 20)
    for host, free, good in (("node0", nccl + files, True), ("node0", nccl + files - 1, False), ("node1", nccl, True)):
        facts = [replace(each, shared_free=free) if each.host == host else each for each in cluster()]
        assert check_shared(facts, planned).good == good
    facts = [replace(each, shared_free=64 << 20) if each.host == "node1" else each for each in cluster()]
    found = check_shared(facts, planned)
    assert "on node1: /dev/shm has 64.0 MiB free, and 256.0 MiB are needed" in found.found and not found.good


def test_host_memory_of_every_host_is_compared(planned):
    facts = [replace(each, host_free=1 << 30) if each.host == "node1" else each for each in cluster()]
    found = check_hosts(facts, planned)
    assert not found.good and "on node1: 1.00 GiB available, and its 8 processes need" in found.found


def test_ports_of_servers():
    def ports(*words: str) -> tuple[int, ...]:
        return find_ports(to_lightning(compose(["recipe=grpo", *words]))["data"])

    assert ports() == () and ports("engine=vllm_server") == ()
    assert ports("engine=vllm_server", "engine.port=8000", "engine.servers=2") == (8000, 8001)


def test_names_of_ranks():
    assert name_ranks([3]) == "rank 3" and name_ranks(range(9)) == "ranks 0, 1, 2, 3 and 5 others"


def test_a_mesh_that_cannot_be_is_refused_before_processes_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process is started"))
    words = override([*WORDS, f"run_dir={tmp_path}"], ["strategy=fsdp2", "strategy.shard_size=3"])
    assert main(["doctor", *words]) == 2
    assert "shard_size=3 does not divide the 2 processes" in capsys.readouterr().err
