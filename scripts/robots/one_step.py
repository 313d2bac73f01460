"""Success and speed of a one-step policy relative to its teacher: scripts/robots/one_step.py RUN...

RUN is the folder of a finished `mmrl fit recipe=one_step`, one per seed. On the run's held-out initial states, without
noise in the transitions, three policies play: the teacher (the run's starting weights through `policy.teacher`), the
same weights in a single step of that chain, and the student. A decision is timed for one robot: encoding, reading the
context, all transitions, decoding; teacher and student take turns of 20 decisions, medians over all decisions. Writes
docs/results/one_step/retention.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.cli import load_run
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.evaluation.statistics.intervals import mcnemar, wilson
from mmrl.experiments.effect import student_interval
from mmrl.policies.vla.chains import Chain

ROOT = Path(__file__).parents[2]
STILL = Sampling(decode="mean")
TURN = 20  # decisions: one that follows the other policy's finds none of its own weights in the cache


def successes(cli: Any, checkpoint: Path, chain: Chain) -> list[bool]:
    """Whether each held-out episode succeeded, in the order of the problems."""
    load_policy(cli.model.policy, str(checkpoint))
    cli.model.policy.chain = chain
    cli.trainer.validate(cli.model, cli.datamodule, verbose=False)
    episodes = sorted(cli.datamodule.evaluation.latest["still"], key=lambda episode: episode.group)
    return [episode.scores["success"] > 0 for episode in episodes]


def seconds(cli: Any, chains: Mapping[str, Chain], rounds: int) -> dict[str, float]:
    """Median seconds of one decision per chain; the chains alternate for `rounds` rounds."""
    policy, sim = cli.model.policy, cli.datamodule.task.sim
    env = sim.make(1)
    observation, _ = env.reset(seed=[0])
    raw = {name: rows[0] for name, rows in observation.items()}
    env.close()
    spent: dict[str, list[float]] = {name: [] for name in chains}
    with evaluation_mode(policy):
        for _ in range(rounds + 1):
            for name, policy.chain in chains.items():
                for number in range(TURN):
                    started = time.perf_counter()
                    policy.act(policy.collate([policy.encode(raw)]), STILL, Noise([number]))
                    spent[name].append(time.perf_counter() - started)
    return {name: median(times[TURN:]) for name, times in spent.items()}  # the first turn loads code


def compare(run: Path, rounds: int) -> dict[str, Any]:
    """One seed: success rates on the same states, and the two decision rates."""
    cli = load_run(run / "config.yaml", ["--trainer.limit_val_batches=1.0"])
    cli.datamodule.evaluation.sampling = {"still": STILL}
    policy = cli.model.policy
    student, teacher = policy.chain, policy.teacher
    start, last = (run / "checkpoints" / f"{name}.ckpt" for name in ("start", "last"))
    before = successes(cli, start, teacher)
    single = successes(cli, start, replace(teacher, steps=1))
    after = successes(cli, last, student)
    cost = seconds(cli, {"teacher": teacher, "student": student}, rounds)
    shares = {"teacher": mean(before), "teacher_in_one_step": mean(single), "student": mean(after)}
    return {
        "seed": cli.datamodule.seed,
        **shares,
        "episodes": len(after),
        "wilson": {name: wilson(share * len(after), len(after)) for name, share in shares.items()},
        "retention": shares["student"] / shares["teacher"],
        "mcnemar": mcnemar(before, after),
        "milliseconds": {name: 1e3 * value for name, value in cost.items()},
        "rate_ratio": cost["teacher"] / cost["student"],
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds; the retained fraction has a Student 95 % interval from two seeds on."""
    retention = [row["retention"] for row in rows]
    return {
        "retention": mean(retention),
        "retention_interval": student_interval(retention) if len(retention) > 1 else None,
        "rate_ratio": mean(row["rate_ratio"] for row in rows),
        "seeds": list(rows),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {os.environ.get('OMP_NUM_THREADS', 'all')} threads",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--rounds", type=int, default=10, help="timed turns of each")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "one_step" / "retention.json")
    options = parser.parse_args()
    result = summary([compare(run, options.rounds) for run in options.runs])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
