"""Kill runs with SIGKILL at random moments, resume them, and compare them with uninterrupted runs.

python -m tests.runs.kills --kills 40 --folders /tmp /dev/shm

Text, VLM and VLA runs, each on every file system. Half of the kills come while a checkpoint is being written, the
others at any time. A killed run is resumed in its folder, from last.ckpt where it is there, until it ends; then
weights, optimizer, schedules, the data module's state and metrics.csv have to equal those of the other run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, product
from pathlib import Path
from typing import Any

import torch

from mmrl.runs.checkpoint_file import read_checkpoint
from mmrl.runs.metrics_csv import read_rows
from tests.runs.processes import command, run, start
from tests.runs.words import LOGGED
from tests.tiny_recipes import TEXT, override

QUIET = ("trainer.callbacks.curve=null", "trainer.check_val_every_n_epoch=2")
RUNS = {
    "text": (*TEXT, "model.scheduler.total_iters=100"),
    "vlm": override(TEXT, ["policy=tiny_vlm", "data.task.image=true", "model.scheduler.total_iters=100"]),
    "vla": (  # a random arm hardly succeeds: the entropy gives it something to learn
        "recipe=demo_vla",
        "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
        "model.scheduler.total_iters=100",
        *("policy.hidden_size=32", "policy.layers=1", "policy.heads=2", "data.task.sim.image_size=32"),
        *(
            "data.num_prompts=3",
            "data.group_size=2",
            "data.update_epochs=1",
            "data.num_minibatches=2",
            "data.evaluation.count=2",
        ),
    ),
}
LOST_WITH_TIME = ("time/", "peak_gib", "tokens_per_second")  # columns that no two runs share
STATE = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "RolloutData")


@dataclass
class Case:
    """One kind of run on one file system."""

    name: str
    folder: Path
    iterations: int
    seconds: float = 0.0  # that the whole run takes

    def words(self, folder: Path) -> list[str]:
        """Of a run that begins in the folder, or resumes where it was killed."""
        last = folder / "checkpoints" / "last.ckpt"
        resume = [f"ckpt_path={last}"] if last.exists() else []
        own = [*RUNS[self.name], *LOGGED, *QUIET, f"trainer.max_epochs={self.iterations}", f"run_dir={folder}"]
        return ["fit", *own, *resume]

    def log(self, folder: Path) -> Path:
        """What the processes said."""
        return folder.with_name(f"{folder.name}.log")

    def run(self, folder: Path) -> None:
        """Run to the end, in a process of its own."""
        process = start(command, self.words(folder), self.log(folder))
        process.join(600)
        if process.exitcode != 0:
            raise RuntimeError(f"{self.name}: exit code {process.exitcode}\n{self.log(folder).read_text()[-3000:]}")

    def kill_once(self, folder: Path, chance: random.Random, while_saving: bool) -> str | None:
        """Start or resume the run and kill it; what it was killed in, None where it had ended before."""
        process = start(command, self.words(folder), self.log(folder))
        part = folder / "checkpoints" / ".last.ckpt.part"
        if while_saving:
            self._wait_for_save(process, part, skip=chance.randrange(self.iterations), chance=chance)
        else:
            process.join(chance.uniform(0.05, 1.0) * self.seconds)
        process.kill()
        process.join()
        if process.exitcode == 0:
            return None
        if process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"{self.name}: exit code {process.exitcode}\n{self.log(folder).read_text()[-3000:]}")
        return "saving" if part.exists() else "between"

    def _wait_for_save(self, process: Any, part: Path, skip: int, chance: random.Random) -> None:
        """Until a checkpoint is being written, `skip` of them later, and a little longer."""
        part.unlink(missing_ok=True)
        seen, before = 0, False
        while process.is_alive():
            now = part.exists()
            seen += now and not before
            before = now
            if now and seen > skip:
                time.sleep(chance.uniform(0, 0.002))
                return
            time.sleep(0.0002)  # leaves the processor to the run


def differences(killed: Path, whole: Path) -> list[str]:
    """What two finished runs do not have in common."""
    one, two = (read_checkpoint(folder / "checkpoints" / "last.ckpt") for folder in (killed, whole))
    result = [name for name in STATE if not equal(one.get(name), two.get(name))]
    rows, wanted = (_numbers(read_rows(folder / "metrics.csv")) for folder in (killed, whole))
    if len(rows) != len(wanted):
        result.append(f"metrics.csv has {len(rows)} rows, not {len(wanted)}")
    return result + [f"metrics.csv, row {i}" for i, (a, b) in enumerate(zip(rows, wanted)) if a != b]


def equal(one: Any, two: Any) -> bool:
    """Bit for bit, NaN equal to itself."""
    if isinstance(one, torch.Tensor):
        same = isinstance(two, torch.Tensor) and one.dtype == two.dtype and one.shape == two.shape
        return same and one.contiguous().numpy().tobytes() == two.contiguous().numpy().tobytes()
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(two) and len(one) == len(two) and all(map(equal, one, two))
    return one == two or (isinstance(one, float) and isinstance(two, float) and math.isnan(one) and math.isnan(two))


def _numbers(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{name: v for name, v in row.items() if not any(word in name for word in LOST_WITH_TIME)} for row in rows]


def kill(case: Case, number: int, kills: int, whole: Path, seed: int) -> Iterator[str]:
    """Kill one run up to `kills` times and resume it each time; yields what each kill met, raises where it differs."""
    folder, chance = case.folder / f"{case.name}-{number}", random.Random(f"{seed}/{case.name}/{number}")
    for _ in range(kills):
        met = case.kill_once(folder, chance, while_saving=chance.random() < 0.5)
        if met is None:
            break
        yield met
    else:
        case.run(folder)
    if result := differences(folder, whole):
        raise AssertionError(f"{folder} differs from the run that was not killed in: {result}")
    shutil.rmtree(folder)


def kill_runs(
    names: Sequence[str], folders: Sequence[Path], kills: int, iterations: int, seed: int = 0, most: int = 4
) -> Counter[str]:
    """So many kills in all, `most` in one run; how many there were, by kind, file system and what they met.

    Raises:
        AssertionError: a resumed run is not the run that was not killed.
    """
    run(int)  # the first process waits for imports, which is no part of a run's time
    wholes: dict[str, Path] = {}
    cases = [Case(name, folder, iterations) for folder, name in product(folders, names)]
    for case in cases:
        if case.name not in wholes:
            wholes[case.name] = case.folder / f"{case.name}-whole"
            began = time.perf_counter()
            case.run(wholes[case.name])
            seconds = time.perf_counter() - began
            for each in cases:
                each.seconds = seconds if each.name == case.name else each.seconds
    done: Counter[str] = Counter()
    for number, case in zip(count(), cycle(cases)):
        left = kills - done.total()
        if left <= 0:
            return done
        for met in kill(case, number, min(most, left), wholes[case.name], seed):
            done[f"{case.name} on {case.folder.parent}, {met}"] += 1
    raise AssertionError("unreachable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", type=Path, nargs="+", default=[Path(tempfile.gettempdir()), Path("/dev/shm")])
    options = parser.parse_args()
    folders = [Path(tempfile.mkdtemp(prefix="mmrl-kills-", dir=folder)) for folder in options.folders]
    devices = {folder.stat().st_dev for folder in folders}
    try:
        done = kill_runs(options.runs, folders, options.kills, options.iterations, options.seed)
        print(
            json.dumps(
                {"kills": done.total(), "file systems": len(devices), "met": dict(sorted(done.items()))}, indent=2
            )
        )
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
