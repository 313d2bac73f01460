"""The launch scripts print what they would start, and start it: with torchrun, and under a stand-in for Slurm."""

import os
import shlex
import signal
import subprocess
import time
from itertools import chain
from pathlib import Path

import pytest
from torch.testing import assert_close

from mmrl.config.compose import compose
from tests.quick_python import quick_python
from tests.tiny_recipes import ROOT, command, free_port, record, words

SCRIPTS = ROOT / "scripts" / "launch"
RUN = ("trainer.max_epochs=2", "scheduler=constant", "trainer.check_val_every_n_epoch=1")
SBATCH = """#!/usr/bin/env bash
# starts the script at once, as the batch script of a job
while [[ $1 == --* ]]; do case $1 in --nodes=*) export SLURM_NNODES=${1#*=};; esac; shift; done
SLURM_JOB_ID=4711 SLURM_JOB_NAME=mmrl exec "$@"
"""
SRUN = """#!/usr/bin/env bash
# starts the tasks of all nodes on this machine, with the variables that Slurm gives them
while [[ $1 == --* ]]; do
  case $1 in --nodes=*) nodes=${1#*=};; --ntasks-per-node=*) tasks=${1#*=};; esac
  shift
done
export SLURM_NNODES=$nodes SLURM_NTASKS_PER_NODE=$tasks SLURM_NTASKS=$((nodes * tasks)) SLURM_NODELIST=localhost
for ((rank = 0; rank < nodes * tasks; rank++)); do
  SLURM_PROCID=$rank SLURM_LOCALID=$((rank % tasks)) SLURM_NODEID=$((rank / tasks)) "$@" &
  started+=($!)
done
trap 'kill -TERM "${started[@]}"' TERM
status=0
for process in "${started[@]}"; do
  wait "$process"; code=$?
  while kill -0 "$process" 2>/dev/null; do wait "$process"; code=$?; done # a signal ends a wait
  ((code == 0)) || status=$code
done
exit $status
"""


def start(script: str, arguments: list[str], folder: Path, **variables: str) -> subprocess.Popen:
    """Start a launch script, with the stand-ins for Slurm first on PATH."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (("sbatch", SBATCH), ("srun", SRUN)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    own = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": quick_python(), "PYTHONPATH": str(ROOT)}
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return subprocess.Popen(
        [str(SCRIPTS / script), *arguments],
        env=kept | own | {"OMP_NUM_THREADS": "1"} | variables,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(script: str, arguments: list[str], folder: Path, **variables: str) -> tuple[int, str, str]:
    """What a launch script ends with: status, output and errors."""
    process = start(script, arguments, folder, **variables)
    try:
        output, errors = process.communicate(timeout=200)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output, errors


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The record of the run in one process."""
    return command(tmp_path_factory.mktemp("alone"), *RUN)


@pytest.mark.parametrize("script", ["torchrun.sh", "slurm.sh"])
def test_the_scripts_are_bash(script):
    assert subprocess.run(["bash", "-n", str(SCRIPTS / script)]).returncode == 0


@pytest.mark.parametrize(
    ("script", "nodes", "more", "strategy"),
    [
        ("torchrun.sh", 2, [], ("fsdp2", 8)),
        ("torchrun.sh", 1, ["strategy=ddp"], ("ddp", None)),
        ("slurm.sh", 2, [], ("fsdp2", 8)),
        ("slurm.sh", 2, ["strategy=fsdp2", "strategy.shard_size=4"], ("fsdp2", 4)),
    ],
    ids=str,
)
def test_a_dry_run_prints_the_commands_and_the_plan(script, nodes, more, strategy, tmp_path):
    given = ["recipe=grpo", "policy=tiny_text", f"run_dir={tmp_path}/a run", *more]
    variables = {"DRY_RUN": "1", "NODES": str(nodes), "DEVICES": "8", "MASTER_ADDR": "node0", "MEMORY": "80GB"}
    status, output, errors = run(script, given, tmp_path, **variables)
    assert status == 0, errors
    lines = dict(line.split(": ", 1) for line in output.splitlines() if line.startswith(("node ", "submit")))
    commands = {name: shlex.split(line) for name, line in lines.items()}
    assert [name for name in commands if name != "submit"] == [f"node {node}" for node in range(nodes)]
    for node in range(nodes):
        launcher, trained = split(commands[f"node {node}"])
        cfg = compose(trained)
        chosen = (cfg.trainer.devices, cfg.trainer.num_nodes, cfg.choices.strategy, cfg.trainer.strategy)
        assert chosen[:3] == (8, nodes, strategy[0])
        assert strategy[1] is None or chosen[3].shard_size == strategy[1]
        assert cfg.run_dir == f"{tmp_path}/a run"
        if script == "torchrun.sh":
            assert "--nproc-per-node=8" in launcher
            assert ("--standalone" in launcher) == (nodes == 1)
            assert nodes == 1 or {f"--node-rank={node}", "--nnodes=2", "--master-addr=node0"} <= set(launcher)
        else:
            assert launcher[0] == "srun" and {"--nodes=2", "--ntasks-per-node=8"} <= set(launcher)
    if script == "slurm.sh":
        submitted = commands["submit"]
        assert submitted[0] == "sbatch" and {"--nodes=2", "--gpus-per-node=8", "--ntasks-per-node=8"} <= set(submitted)
        assert submitted[submitted.index(str(SCRIPTS / script)) + 1 :] == given
    assert f"processes  {nodes} x 8 cuda" in output and "fits: " in output
    assert not (tmp_path / "a run").exists()


def split(line: list[str]) -> tuple[list[str], list[str]]:
    """The launcher's words, and those of `mmrl fit`."""
    at = line.index("mmrl")
    assert line[at - 1 : at + 2] == ["-m", "mmrl", "fit"]
    return line[: at - 1], line[at + 2 :]


@pytest.mark.parametrize("script", ["torchrun.sh", "slurm.sh"])
def test_a_run_without_a_folder_is_refused(script, tmp_path):
    status, _, errors = run(script, ["recipe=grpo"], tmp_path)
    assert status == 2 and errors.splitlines() == [f"{script}: give run_dir=FOLDER, which all processes must know"]


def check(folder: Path, alone: dict, ranks: int) -> None:
    """Compare the records of all processes with that of one process."""
    first = record(folder)
    for rank in range(1, ranks):
        assert_close(first["weights"], record(folder, rank)["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=2e-6, rtol=0)
    for whole, *parts in zip(alone["minibatches"], *(record(folder, rank)["minibatches"] for rank in range(ranks))):
        assert sorted(whole) == sorted(chain.from_iterable(parts))


def test_torchrun_starts_the_processes_of_a_node(tmp_path, alone):
    status, _, errors = run("torchrun.sh", words(tmp_path, *RUN, "strategy=ddp"), tmp_path, DEVICES="2")
    assert status == 0, errors[-5000:]
    check(tmp_path, alone, ranks=2)


@pytest.mark.slow
def test_torchrun_starts_two_nodes_with_hsdp(tmp_path, alone):
    """Both agents run on this machine; each node holds one copy of the weights, sharded over two processes."""
    variables = {"NODES": "2", "DEVICES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    other = start("torchrun.sh", words(tmp_path, *RUN), tmp_path, NODE_RANK="1", **variables)
    status, _, errors = run("torchrun.sh", words(tmp_path, *RUN), tmp_path, NODE_RANK="0", **variables)
    assert status == 0 and other.wait(60) == 0, errors[-5000:]
    check(tmp_path, alone, ranks=4)
    held = [record(tmp_path, rank)["held"] for rank in range(4)]
    assert max(held) <= 0.55 * alone["held"]


def test_slurm_starts_the_processes_of_two_nodes(tmp_path, alone):
    variables = {"NODES": "2", "DEVICES": "1"}
    status, _, errors = run("slurm.sh", words(tmp_path, *RUN), tmp_path, **variables)
    assert status == 0, errors[-5000:]
    check(tmp_path, alone, ranks=2)
    assert not (tmp_path / "lightning_logs").exists()


def test_slurms_sigterm_ends_the_run_with_a_checkpoint(tmp_path):
    given = words(tmp_path, "trainer.max_epochs=100000", "strategy=ddp")
    process = start("slurm.sh", given, tmp_path, DEVICES="2")
    try:
        until = time.monotonic() + 120
        while (
            not (tmp_path / "checkpoints" / "last.ckpt").exists()
            and time.monotonic() < until
            and process.poll() is None
        ):
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + signal.SIGTERM, errors[-5000:]
    assert f"resume with: mmrl fit --config {tmp_path}/config.yaml" in errors
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()
