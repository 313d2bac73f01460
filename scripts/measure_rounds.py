"""Run a file of rounds over seeds and store its held-out scores: scripts/measure_rounds.py rest --seeds 0 1 2

Each evaluation is compared with the one before it and with the first one, and the last one of a round with that of the
round before, seed by seed: the mean difference has Student's 95 % interval over the seeds. The last evaluation is
compared with that of each of the file's `baselines` in the same way, beside the completions that each of them sampled
and the rows that it learned from, counted once a pass.
docs/results/rounds/NAME.json has the numbers of every seed, the stages, and hashes of the configuration and code of
every fit; NAME.png has the scores over the stages. Seeds that have ended are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from mmrl.commands.rounds.file import RoundsFile, read_rounds
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.schedule import StageRun, list_steps
from mmrl.commands.rounds.stages import FitStage
from mmrl.commands.rounds.words import build_words
from mmrl.evaluation.report.plots import COLOURS
from mmrl.evaluation.statistics.intervals import student_interval
from mmrl.experiments.content import hash_content
from mmrl.experiments.runner import describe_machine

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "results" / "rounds"
LEAST_SEEDS = 3
STAGES = ("rounds", "common", "start", "stages")
"""Keys of a file that its result depends on."""
Scores = Mapping[int, Mapping[str, Mapping[str, float]]]
"""By seed and evaluation: mean, interval and number of problems."""


def read_scores(folder: Path, steps: Sequence[StageRun]) -> dict[str, dict[str, float]]:
    """Read mean, interval and number of problems of every evaluation of a seed, in order."""
    scores = {}
    for step in steps:
        if step.kind != "evaluate":
            continue
        receipt = read_receipt(folder / step.name)
        if receipt is None:
            raise SystemExit(f"{folder / step.name} has not ended; run the seed again")
        measured = receipt.result
        scores[step.name] = {key: measured[key] for key in ("mean", "lower", "upper", "n") if key in measured}
    return scores


def read_budget(folder: Path, steps: Sequence[StageRun]) -> dict[str, float]:
    """Count the completions that a seed has sampled, and the rows that its fits learned from, once a pass."""
    budget = {"sampled": 0.0, "learned": 0.0}
    for step in steps:
        receipt = read_receipt(folder / step.name)
        rows = receipt.result.get("rows", 0) if receipt else 0
        if step.kind == "sample":
            budget["sampled"] += rows
        elif isinstance(step.stage, FitStage):
            budget["learned"] += rows * (step.stage.passes or 1)
    return budget


def compare_baselines(seeds: Scores, baselines: Mapping[str, Scores]) -> dict[str, Any]:
    """Compare the last evaluation with that of each baseline, paired over the seeds."""
    ends = {seed: list(scores.values())[-1]["mean"] for seed, scores in seeds.items()}
    comparison = {}
    for name, others in baselines.items():
        other_ends = {seed: list(scores.values())[-1]["mean"] for seed, scores in others.items()}
        gains = [ends[seed] - other_ends[seed] for seed in ends]
        comparison[name] = {
            "mean": mean(other_ends.values()),
            "gain": {"mean": mean(gains), "interval": list(student_interval(gains))},
        }
    return comparison


def compare_stages(seeds: Scores) -> list[dict[str, Any]]:
    """Compare each evaluation with the one before it and with the first one, paired over the seeds.

    The last evaluation of a round is compared with that of the round before, too.
    """
    names = list(next(iter(seeds.values())))
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        row: dict[str, Any] = {"stage": name, "mean": mean(scores[name]["mean"] for scores in seeds.values())}
        others = {"before": names[number - 1], "first": names[0]} if number else {}
        ends = {each.partition("/")[0]: each for each in names[: number + 1]}  # the last one of each round
        if number + 1 == len(names) or names[number + 1].partition("/")[0] != name.partition("/")[0]:
            others |= {"round_before": list(ends.values())[-2]} if len(ends) > 1 else {}
        for key, other in others.items():
            gains = [scores[name]["mean"] - scores[other]["mean"] for scores in seeds.values()]
            row[f"gain_over_{key}"] = {"stage": other, "mean": mean(gains), "interval": list(student_interval(gains))}
        rows.append(row)
    return rows


def hash_fits(file: RoundsFile, steps: Sequence[StageRun]) -> dict[str, str]:
    """Hash configuration and code of every distinct fit, without rows, weights, seed and folder."""
    fits = [step for step in steps if step.kind == "fit"]
    return {step.name: hash_content(build_words(file, step, Path("run"))) for step in fits}


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw the score of every seed, and their mean, over the evaluations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = [row["stage"] for row in result["stages"]]
    for seed, scores in result["seeds"].items():
        values = [[scores[name].get(key, scores[name]["mean"]) for name in names] for key in ("mean", "lower", "upper")]
        errors = [[m - low for m, low in zip(values[0], values[1])], [up - m for m, up in zip(values[0], values[2])]]
        axes.errorbar(names, values[0], yerr=errors, capsize=2, alpha=0.5, linewidth=1, label=f"seed {seed}")
    axes.plot(names, [row["mean"] for row in result["stages"]], color=COLOURS[0], marker="o", label="mean")
    for number, (name, baseline) in enumerate(result["baselines"].items(), start=1):
        axes.axhline(baseline["mean"], color=COLOURS[number], linestyle="--", linewidth=1, label=f"{name}, at its end")
    axes.tick_params(axis="x", rotation=45)
    axes.set_ylabel(result["metric"])
    axes.set_title(result["title"], loc="left", fontsize=10)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})  # equal numbers give equal bytes


@dataclass(frozen=True)
class Arm:
    """A file of rounds, or one of its baselines, that has run on every seed."""

    file: RoundsFile
    steps: Sequence[StageRun]
    folders: Mapping[int, Path]

    @property
    def scores(self) -> Scores:
        """The scores of every seed."""
        return {seed: read_scores(folder, self.steps) for seed, folder in self.folders.items()}

    @property
    def budget(self) -> dict[str, float]:
        """The mean budget of a seed."""
        budgets = [read_budget(folder, self.steps) for folder in self.folders.values()]
        return {key: mean(budget[key] for budget in budgets) for key in budgets[0]}


def run_arm(arguments: Sequence[str], seeds: Sequence[int], stem: Path) -> Arm:
    """Run a file of rounds with these arguments on every seed, in the folders STEM-SEED."""
    folders = {seed: Path(f"{stem}-{seed}").absolute() for seed in seeds}
    for seed, folder in folders.items():
        run_seed(arguments, seed, folder)
    file = read_rounds(arguments)
    return Arm(file, list_steps(file), folders)


def run_seed(arguments: Sequence[str], seed: int, folder: Path) -> None:
    """Run a seed, or resume it."""
    command = [sys.executable, "-m", "mmrl", "rounds", *arguments, f"seed={seed}", f"run_dir={folder}"]
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    subprocess.run(command, check=True, cwd=ROOT, env=environment)


def build_result(arm: Arm, baselines: Mapping[str, Arm]) -> dict[str, Any]:
    """Build the result that is stored."""
    values, scores = arm.file.values, arm.scores
    last = next(step for step in reversed(arm.steps) if step.kind == "evaluate")
    receipt = read_receipt(next(iter(arm.folders.values())) / last.name)
    comparison = compare_baselines(scores, {name: each.scores for name, each in baselines.items()})
    return {
        "rounds": arm.file.name,
        "title": values.get("title", arm.file.name),
        "metric": receipt.result["metric"] if receipt else "",
        "stages": compare_stages(scores),
        "budget": arm.budget,
        "baselines": {
            name: {**comparison[name], "budget": each.budget, "seeds": {str(k): v for k, v in each.scores.items()}}
            for name, each in baselines.items()
        },
        "seeds": {str(seed): each for seed, each in scores.items()},
        "file": {key: values[key] for key in STAGES},
        "content": hash_fits(arm.file, arm.steps),
        "machine": describe_machine(1),
    }


def main() -> None:
    """Parse the arguments, run the seeds, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", help="file of conf/rounds, or a path as examples/rewards/car.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "measured_rounds", help="folder of the runs")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the result")
    options = parser.parse_args()
    if len(set(options.seeds)) < LEAST_SEEDS:
        parser.error(f"--seeds: an interval needs at least {LEAST_SEEDS} seeds")
    title = read_rounds([options.place]).name
    stem = options.runs / title
    arm = run_arm([options.place], options.seeds, stem)
    baselines = {
        name: run_arm([options.place, *arguments], options.seeds, Path(f"{stem}-{name}"))
        for name, arguments in arm.file.values.get("baselines", {}).items()
    }
    result = {"place": options.place, **build_result(arm, baselines)}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{title}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    plot(result, path.with_suffix(".png"))
    for row in result["stages"]:
        gain = row.get("gain_over_before")
        interval = (
            "" if gain is None else f"  {gain['mean']:+.3f} [{gain['interval'][0]:+.3f}, {gain['interval'][1]:+.3f}]"
        )
        print(f"{row['stage']:24} {row['mean']:.3f}{interval}")
    for name, baseline in result["baselines"].items():
        gain = baseline["gain"]
        interval = f"[{gain['interval'][0]:+.3f}, {gain['interval'][1]:+.3f}]"
        print(f"over {name:19} {baseline['mean']:.3f}  {gain['mean']:+.3f} {interval}")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
