"""Several processes beside one: python scripts/bench_scale.py --measure scaling memory collectives plan.

One JSON line for each measurement on stdout. Every process computes on a core of its own (`taskset`,
OMP_NUM_THREADS=1) or, with --device cuda, on a GPU of its own; runs with more processes than cores share them, and
only their memory and bytes mean something. The runs of a round are made in turn, and all figures are medians over the
rounds; ratios are formed within a round. Other programs make the seconds worthless: `elsewhere` is how many cores they
used in the mean.

scaling, for ddp and fsdp2; "one" has half of the prompts of "two" and of "whole":
  seconds             phases of an iteration: one process; whole: one process with all prompts; beside: two runs of one
                      process at the same time that know nothing of each other; two: two processes
  weak, strong        one / two, and whole / (2 * two), for rollout, learn and iteration
  beside, of_beside   one / beside: what the machine allows; and beside / two: what is left without its limits
  balance             tokens of the process with most of them over the mean, sampled in an iteration and learned in an
                      update: a phase ends with the last process
memory, for each strategy and number of processes; bytes, of the process with most of them:
  held                weights, gradients and optimiser state, counted from the tensors; share: of one process's
  peak, planned       resident memory above the imports (VmHWM), and the largest phase of `mmrl plan`; on a GPU the
                      allocator's peak
collectives, for each strategy:
  used                calls, bytes, seconds of waiting for other processes and of transfer, per iteration, by phase
  alone               seconds of one reduction of all gradients, and of gathering all weights, with nothing beside it
decoding, two processes with fsdp2, every row as long as the longest, of the slower process:
  gathered            weights gathered once, as mmrl decodes; seconds, CPU seconds, and bytes that the ranks gather
  aligned             the weights of a block gathered in every decoding step, and the others once
  ratio               aligned / gathered
plan:
  seconds             of `mmrl plan --from` one process for two, beside the measured ones; ratio: measured / planned
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.process import versions
from benchmark.scale import SIZES, Launcher, Run, cpu_seconds

PHASES = ("rollout", "learn", "iteration")
MEASURES = ("scaling", "memory", "collectives", "decoding", "plan")
GRID = (("single", 1), ("ddp", 2), ("fsdp2", 2), ("ddp", 4), ("fsdp2", 4), ("hsdp", 4))


def measure_scaling(launcher: Launcher, prompts: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Compare one process, two runs beside each other and two processes of each strategy."""
    half, whole = f"data.num_prompts={prompts}", f"data.num_prompts={2 * prompts}"
    by_name: dict[str, list[Run]] = {name: [] for name in ("one", "whole", "beside", "ddp", "fsdp2")}
    for number in range(rounds):
        by_name["one"].append(launcher.run("single", 1, half, core=number % 2))
        by_name["ddp"].append(launcher.run("ddp", 2, whole))
        by_name["whole"].append(launcher.run("single", 1, whole, core=number % 2))
        by_name["fsdp2"].append(launcher.run("fsdp2", 2, whole))
        pair = [launcher.start("single", 1, half, core=core) for core in range(2)]
        by_name["beside"].append(max((launcher.finish(each) for each in pair), key=lambda run: run.iteration))
    for strategy in ("ddp", "fsdp2"):
        runs = {**{name: by_name[name] for name in ("one", "whole", "beside")}, "two": by_name[strategy]}
        yield {"measurement": "scaling", "strategy": strategy, **compare(runs)}


def compare(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """Efficiencies of each phase from the runs of all rounds."""
    seconds = {name: [_phases(run) for run in each] for name, each in runs.items()}

    def ratio(above: str, below: str, times: int = 1) -> dict[str, float]:
        pairs = list(zip(seconds[above], seconds[below]))
        return {phase: round(median(a[phase] / b[phase] for a, b in pairs) / times, 3) for phase in PHASES}

    return {
        "weak": ratio("one", "two"),
        "strong": ratio("whole", "two", 2),
        "beside": ratio("one", "beside"),
        "of_beside": ratio("beside", "two"),
        "balance": {what: round(median(run.balance(what) for run in runs["two"]), 3) for what in ("tokens", "learned")},
        "seconds": {name: [_round_values(each) for each in rounds] for name, rounds in seconds.items()},
    }


def _phases(run: Run) -> dict[str, float]:
    return {**run.seconds, "iteration": run.iteration}


def _round_values(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in seconds.items()}


def measure_memory(launcher: Launcher, prompts: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Compare what a process holds, and its peak, with what one process holds and with the plan."""
    one: dict[str, int] = {}
    for strategy, processes in GRID:
        words = (f"data.num_prompts={prompts}",)
        runs = [launcher.run(strategy, processes, *words) for _ in range(rounds)]
        planned = launcher.plan(launcher.words(strategy, processes, *words))
        sizes = max((rank["held"] for run in runs for rank in run.ranks), key=lambda sizes: sum(sizes.values()))
        one = one or sizes
        peak = int(median(max(_peak(rank, launcher.device) for rank in run.ranks) for run in runs))
        expected = max(rank["peak"] for rank in planned["ranks"])
        yield {
            "measurement": "memory",
            "strategy": strategy,
            "processes": processes,
            "parameters": planned["policy"]["parameters"],
            "held": sizes,
            "share": round(sum(sizes.values()) / sum(one.values()), 4),
            "peak": peak,
            "planned": expected,
            "ratio": round(peak / expected, 3),
        }


def _peak(rank: dict[str, Any], device: str) -> int:
    return int(rank["peak"] - (0 if device == "cuda" else rank["before"]))


def measure_collectives(launcher: Launcher, prompts: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Count the collectives of an iteration, and time them alone."""
    for strategy, processes in GRID[1:]:
        words = (f"data.num_prompts={prompts}",)
        counted = launcher.run(strategy, processes, *words, collectives=True)
        line = {"measurement": "collectives", "strategy": strategy, "processes": processes}
        if processes <= (os.cpu_count() or 1) or launcher.device == "cuda":  # others would time each other's turns
            alone = [launcher.run(strategy, processes, *words).ranks[0]["alone"] for _ in range(rounds)]
            line["alone"] = {name: median(each[name] for each in alone) for name in alone[0]}
        yield {**line, "used": {k: v for k, v in counted.ranks[0]["used"].items() if k in ("collect", "learn")}}


def measure_decoding(launcher: Launcher, prompts: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Compare decoding on gathered weights with gathering each block in every step."""
    words = (f"data.num_prompts={2 * prompts}",)
    ranks = launcher.wait(launcher.start("fsdp2", 2, *words, module="decode_run", ROUNDS=str(rounds)))
    yield {"measurement": "decoding", "processes": 2, **compare_ways(ranks)}


def compare_ways(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the ways of decoding from what each process measured."""
    by_way: dict[str, Any] = {}
    for way in ("gathered", "aligned"):
        each = [rank[way] for rank in ranks]
        seconds, cpu = ([max(times) for times in zip(*(one[key] for one in each))] for key in ("seconds", "cpu"))
        by_way[way] = {"seconds": seconds, "cpu": cpu, "bytes": each[0]["bytes"], "calls": each[0]["calls"]}
    pairs = {key: zip(by_way["aligned"][key], by_way["gathered"][key]) for key in ("seconds", "cpu")}
    ratio = {key: round(median(a / b for a, b in each), 3) for key, each in pairs.items()}
    ratio["bytes"] = round(by_way["aligned"]["bytes"] / by_way["gathered"]["bytes"], 3)
    shared = {name: ranks[0][name] for name in ("parameters", "rows", "steps")}
    return {**shared, **by_way, "ratio": ratio}


def measure_plan(launcher: Launcher, prompts: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Compare the seconds that are planned for two processes from a run of one with measured ones."""
    words = (f"data.num_prompts={2 * prompts}",)
    for strategy in ("ddp", "fsdp2"):
        pairs = []
        for _ in range(rounds):
            source, two = launcher.run("single", 1, *words), launcher.run(strategy, 2, *words)
            planned = launcher.plan(launcher.words(strategy, 2, *words), "--from", str(source.folder))["seconds"]
            pairs.append({name: (_phases(two)[name], {**planned["phases"], **planned}[name]) for name in PHASES})
        yield {
            "measurement": "plan",
            "strategy": strategy,
            "measured": {name: median(each[name][0] for each in pairs) for name in PHASES},
            "planned": {name: median(each[name][1] for each in pairs) for name in PHASES},
            "ratio": {name: round(median(a / b for a, b in (each[name] for each in pairs)), 3) for name in PHASES},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", choices=MEASURES, nargs="+", default=MEASURES)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=SIZES, default="5m", help="of the policy")
    parser.add_argument("--prompts", type=int, default=16, help="of one process")
    parser.add_argument("--iterations", type=int, default=4, help="of a run; the first warms up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--word", action="append", default=[], help="of `mmrl fit`; may be repeated")
    options = parser.parse_args()
    words = [*SIZES[options.size], "data.group_size=8", "data.sampling.max_tokens=32", *options.word]
    for name in options.measure:
        with tempfile.TemporaryDirectory() as folder:
            launcher = Launcher(Path(folder), options.device, words, options.iterations)
            watch = Elsewhere()
            for line in globals()[f"measure_{name}"](launcher, options.prompts, options.rounds):
                settings = {k: v for k, v in vars(options).items() if k != "measure"}
                about = {"settings": settings, "elsewhere": watch.cores(), "versions": versions("torch", "lightning")}
                print(json.dumps({**line, **about}), flush=True)


class Elsewhere:
    """How many cores other programs have used since this was made."""

    def __init__(self) -> None:
        self.start = (time.perf_counter(), *cpu_seconds())

    def cores(self) -> float:
        wall, every, local_seconds = (
            now - then for now, then in zip((time.perf_counter(), *cpu_seconds()), self.start)
        )
        return round(max(every - local_seconds, 0) / wall, 3)


if __name__ == "__main__":
    main()
