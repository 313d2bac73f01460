"""Runs of bench_scale.py: every process on a core or a GPU of its own, started as torchrun starts them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.commands.planning.seconds import read_seconds

COMMON = (
    *("recipe=grpo", "capture=false", "trainer.callbacks.warm_start.stages=null", "data.transforms=null"),
    *("data.evaluation=null", "data.num_minibatches=2"),
    *(f"trainer.callbacks.{name}=null" for name in ("checkpoint", "last", "export", "curve", "progress", "samples")),
)
SIZES = {
    "tiny": ("policy=tiny_text", *(f"policy.config.{key}" for key in ("hidden_size=32", "num_hidden_layers=2"))),
    "5m": (
        "policy=tiny_text",
        *(f"policy.config.{key}" for key in ("hidden_size=256", "intermediate_size=1024", "num_hidden_layers=5")),
    ),
    "30m": (
        "policy=tiny_text",
        *(f"policy.config.{key}" for key in ("hidden_size=512", "intermediate_size=2048", "num_hidden_layers=7")),
    ),
    "135m": ("policy=smollm2",),
}
STRATEGIES = {
    "single": (),
    "ddp": ("strategy=ddp",),
    "fsdp2": ("strategy=fsdp2",),
    "hsdp": ("strategy=fsdp2", "strategy.shard_size=2"),
}
SCRIPTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    Args:
        folder: its run folder.
        seconds: medians of the phases of its iterations but the first, on rank 0.
        ranks: what `scale_run.py` wrote for each process.
    """

    folder: Path
    seconds: dict[str, float]
    ranks: list[dict[str, Any]]

    @property
    def iteration(self) -> float:
        return sum(self.seconds.values())

    def balance(self, what: str) -> float:
        """Tokens of the process with most of them over the mean, averaged over the iterations but the first.

        Args:
            what: "tokens", sampled in an iteration; or "learned", in a micro-batch.
        """
        counts = [rank[what] for rank in self.ranks]
        iterations = len(self.ranks[0]["tokens"])
        first = len(counts[0]) // iterations
        each = list(zip(*(count[first:] for count in counts)))
        return sum(map(max, each)) * len(counts) / sum(map(sum, each))


class Launcher:
    """Starts runs of one model on one kind of device.

    Args:
        folder: for run folders, logs and records.
        device: cpu or cuda.
        words: of `mmrl fit` that all runs have in common.
        iterations: of every run; the first one warms up.
    """

    def __init__(self, folder: Path, device: str, words: Sequence[str], iterations: int):
        self.folder, self.device, self.iterations = folder, device, iterations
        self.common = [*words, f"trainer.accelerator={'gpu' if device == 'cuda' else device}"]
        self.count = 0

    def words(self, strategy: str, processes: int, *more: str) -> list[str]:
        """The words of `mmrl fit` for a run."""
        own = [*STRATEGIES[strategy], f"trainer.devices={processes}"] if processes > 1 else ["trainer.devices=1"]
        length = [f"trainer.max_epochs={self.iterations}", f"trainer.check_val_every_n_epoch={self.iterations}"]
        return override([*COMMON, *self.common, *length], [*own, *more])

    def start(
        self,
        strategy: str,
        processes: int,
        *more: str,
        core: int = 0,
        collectives: bool = False,
        module: str = "scale_run",
        **variables: str,
    ) -> tuple[Path, list[subprocess.Popen[str]]]:
        """Start the processes of a run, of which rank r computes on core or GPU `core` + r, and return its folder."""
        self.count += 1
        folder = self.folder / f"run{self.count}"
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", f"benchmark.{module}", str(folder / "rank")]
        command += [*self.words(strategy, processes, *more), f"run_dir={folder / 'run'}"]
        shared = _variables(processes) | variables | ({"COUNT_COLLECTIVES": "1"} if collectives else {})
        started = []
        for rank in range(processes):
            place = core + rank
            own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            if self.device == "cuda" and processes == 1:
                own["CUDA_VISIBLE_DEVICES"] = str(place)
            with (folder / f"log{rank}").open("w") as log:
                process = subprocess.Popen(_pin(place, self.device) + command, env=own, stdout=log, stderr=log)
            started.append(process)
        return folder, started

    def finish(self, started: tuple[Path, list[subprocess.Popen[str]]]) -> Run:
        """Wait for the processes of a run and read what they wrote."""
        ranks, folder = self.wait(started), started[0]
        return Run(folder / "run", read_seconds(folder / "run" / "metrics.csv"), ranks)

    def wait(self, started: tuple[Path, list[subprocess.Popen[str]]]) -> list[dict[str, Any]]:
        """Wait for processes, and return what each wrote."""
        folder, processes = started
        for rank, process in enumerate(processes):
            if process.wait():
                for other in processes:
                    other.kill()
                raise SystemExit(f"{folder}: exit code {process.returncode}\n{(folder / f'log{rank}').read_text()}")
        return [json.loads((folder / f"rank.{rank}").read_text()) for rank in range(len(processes))]

    def run(self, strategy: str, processes: int, *more: str, core: int = 0, collectives: bool = False) -> Run:
        """Start a run and wait for its end."""
        return self.finish(self.start(strategy, processes, *more, core=core, collectives=collectives))

    def plan(self, words: Sequence[str], *arguments: str) -> dict[str, Any]:
        """What `mmrl plan --json` says about the words."""
        command = [sys.executable, "-m", "mmrl", "plan", *words, *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return dict(json.loads(done.stdout[done.stdout.index("{") :]))


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds since the start of the machine: of all programs, and of this one and its processes that ended."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, interrupts, soft = map(int, fields[:7])
    own = os.times()
    busy = (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
    return busy, own.user + own.system + own.children_user + own.children_system


def override(base: Sequence[str], more: Sequence[str]) -> list[str]:
    """The words of both, without those of `base` whose key is in `more`."""
    changed = {word.partition("=")[0] for word in more}
    return [*(word for word in base if word.partition("=")[0] not in changed), *more]


def _variables(processes: int) -> dict[str, str]:
    """Variables of torchrun that all ranks have in common; one process is started without them."""
    path = os.pathsep.join(filter(None, (str(SCRIPTS), os.environ.get("PYTHONPATH"))))
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "PYTHONPATH": path}
    if processes == 1:
        return threads
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    size = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "GROUP_RANK": "0"}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "bench"}
    return threads | size | where


def _pin(place: int, device: str) -> list[str]:
    """The command that keeps a CPU process on one core."""
    if device != "cpu":
        return []
    return ["taskset", "-c", str(place % (os.cpu_count() or 1))]
