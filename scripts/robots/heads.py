"""Compare all action heads on one task with equal numbers of episodes: python scripts/robots/heads.py --seeds 0.

Each head is cloned from the same demonstrations and then learns from binary success with group advantages. Heads of
one network share its clone. Runs that are finished are kept, so that a second call goes on where the first one stopped,
and what is there so far is written. Writes docs/results/heads/<task>.json and prints a Markdown table: the share of
successes on the same held-out initial states, without noise in the actions, before and after, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from mmrl.experiments.content import hash_content
from mmrl.experiments.effect import measure
from mmrl.experiments.runner import ExperimentRun, RunFailed

ROOT = Path(__file__).parents[2]
METRIC = "val/mean/success/mean"
EPISODES = 512  # of an iteration: 64 initial states and 8 episodes


@dataclass(frozen=True)
class Head:
    """One row of the table: the arguments of its run, and of the run that clones it, if separate."""

    name: str
    words: tuple[str, ...]
    start: tuple[str, ...] = ()


def flow(policy: str, start: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Group advantages for a continuous head, initialised from the clone of another policy with the same network."""
    return ("recipe=flow_sde_grpo", f"policy={policy}"), ("recipe=flow_bc", f"policy={start}")


HEADS = (
    Head("tokens, 256 bins", ("recipe=demo_vla", "data.num_prompts=64")),
    Head("flow, SDE, 4 steps", *flow("tiny_flow_vla", "tiny_flow_vla")),
    Head("flow, learned noise, 4 steps", *flow("tiny_flow_noise_vla", "tiny_flow_vla")),
    Head("flow, CPS, 4 steps", *flow("tiny_cps_vla", "tiny_flow_vla")),
    Head("flow, 1 step", *flow("tiny_one_step_vla", "tiny_flow_vla")),
    Head("average velocity, 1 step", *flow("tiny_mean_flow_vla", "tiny_mean_flow_vla")),
    Head("DDIM, 5 steps", *flow("tiny_diffusion_vla", "tiny_diffusion_vla")),
    Head("Gaussian chunk", *flow("tiny_gaussian_vla", "tiny_gaussian_vla")),
)


def list_runs(head: Head, seed: int, iterations: int, words: Sequence[str], runs: Path) -> Iterator[ExperimentRun]:
    """The cloning run, if separate, and the run that learns from rewards."""
    common = (*words, f"data.evaluation.offset={EPISODES * 2}")
    learn_words = (
        *head.words,
        f"trainer.max_epochs={iterations}",
        f"trainer.check_val_every_n_epoch={iterations}",
        *common,
    )
    if head.start:
        clone = (*head.start, *common, "data.evaluation=null")
        run = _list_run("clone", clone, seed, runs)
        yield run
        checkpoint = f"trainer.callbacks.warm_start.checkpoint={run.folder}/checkpoints/last.ckpt"
        learn_words = (*learn_words, "trainer.callbacks.warm_start.stages=null", checkpoint)
    yield _list_run("learn", learn_words, seed, runs)


def is_finished(run: ExperimentRun) -> bool:
    """Whether the run has ended without an error."""
    return (run.folder / "receipt.json").exists()


def _list_run(side: str, words: tuple[str, ...], seed: int, runs: Path) -> ExperimentRun:
    content = hash_content([word for word in words if not word.startswith("trainer.callbacks.warm_start.checkpoint=")])
    return ExperimentRun("heads", side, seed, words, content, runs / f"{side}-{content[:12]}-{seed}")


def row(head: Head, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Results of the seeds of one head."""
    seeds = [measure(result, METRIC) for result in results]
    return {"head": head.name, "words": head.words, "seeds": seeds}


def format_table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown table: one row per head."""
    lines = ["| head | cloned | after RL | seeds | minutes of RL |", "|---|---|---|---|---|"]
    for one in rows:
        before, after = (", ".join(_format_share(seed, key) for seed in one["seeds"]) for key in ("before", "after"))
        minutes = mean(seed["seconds"] for seed in one["seeds"]) / 60
        lines.append(f"| {one['head']} | {before} | {after} | {len(one['seeds'])} | {minutes:.0f} |")
    return "\n".join(lines)


def _format_share(seed: dict[str, Any], key: str) -> str:
    low, high = seed[f"wilson_{key}"]
    return f"{100 * seed[key]:.1f} % [{100 * low:.0f}, {100 * high:.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="further words of all runs, such as sim=push")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--iterations", type=int, default=20, help=f"of {EPISODES} episodes each")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="run heads whose name begins so; show what there is of the others"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "heads")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "heads" / "reach.json")
    options = parser.parse_args()
    rows = []
    for head in HEADS:
        results = []
        for seed in options.seeds:
            steps = list(list_runs(head, seed, options.iterations, options.words, options.runs.absolute()))
            if not head.name.startswith(tuple(options.only)) and not all(map(is_finished, steps)):
                continue
            try:
                results.append([run() for run in steps][-1])
            except RunFailed as error:
                print(error)
        if results:
            rows.append(row(head, results))
        result = {
            "episodes": options.iterations * EPISODES,
            "words": options.words,
            "rows": rows,
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(format_table(rows))


if __name__ == "__main__":
    main()
