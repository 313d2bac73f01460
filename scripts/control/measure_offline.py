"""Compare offline methods on logs of SAC on Pendulum: scripts/control/measure_offline.py

Records the logs (scripts/control/pendulum_logs.py), trains IQL, CQL, TD3+BC, AWAC and behaviour cloning on each of them
with each seed, and stores the normalised scores of greedy held-out episodes: 0 is the mean return of uniform actions,
100 that of the expert. The folder of --out gets every run as JSON and the table as Markdown, with Student's 95 %
intervals over the seeds. Runs that have ended are not run again, so that an interrupted call can be repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.evaluation.statistics.intervals import student_interval  # noqa: E402
from mmrl.experiments.content import hash_content  # noqa: E402
from mmrl.experiments.runner import ExperimentRun, describe_machine  # noqa: E402
from scripts.control.pendulum_logs import LOGS, record_logs  # noqa: E402

METRIC = "val/greedy/returns/return"
METHODS = {
    "BC": ["method=bc_control", "setting=offline_pendulum", "policy=tanh_mean"],
    "IQL": ["recipe=iql"],
    "CQL": ["recipe=cql"],
    "TD3+BC": ["recipe=td3_bc"],
    "AWAC": ["recipe=awac", "data.collect_from=null"],
}
OVERRIDES = [
    "trainer.max_epochs=8",
    "trainer.check_val_every_n_epoch=8",
    "data.gradient_steps=250",
    "data.evaluation.count=64",
]
"""Of all runs: 2,000 updates on batches of 256 transitions."""
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Normalised scores by log, method and seed."""


def normalise(value: float, anchors: Mapping[str, float]) -> float:
    """Score of a return: 0 at that of uniform actions, 100 at the expert's."""
    return 100 * (value - anchors["random"]) / (anchors["expert"] - anchors["random"])


def list_runs(
    logs: Path, seeds: Sequence[int], runs: Path, overrides: Sequence[str], methods: Sequence[str] = tuple(METHODS)
) -> list[ExperimentRun]:
    """All runs, seed by seed; `recipe` of a run is LOG/METHOD."""
    listed = []
    for seed in seeds:
        for log in LOGS:
            for method in methods:
                every = (*METHODS[method], *overrides, f"data.path={logs / log}.hdf5")
                folder = runs / log / f"{method.replace('+', '_')}-{seed}"
                listed.append(ExperimentRun(f"{log}/{method}", "method", seed, every, hash_content(every), folder))
    return listed


def format_scores(scores: Scores, returns: Mapping[str, float], anchors: Mapping[str, float]) -> str:
    """Table in Markdown: a row for each log, with the score of the log itself and that of every method."""
    lines = ["| log | its own score | " + " | ".join(METHODS) + " |", "|---|---:|" + "---:|" * len(METHODS)]
    for log in LOGS:
        cells = [f"{normalise(returns[log], anchors):.0f}"]
        for method in METHODS:
            values = list(scores.get(log, {}).get(method, {}).values())
            low, high = student_interval(values) if len(values) > 1 else (0.0, 0.0)
            middle = f"{mean(values):.0f}" if values else "not run"
            cells.append(f"{middle} [{low:.0f}, {high:.0f}]" if len(values) > 1 else middle)
        lines.append(f"| {log.replace('_', '-')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "offline" / "pendulum")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "offline")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "offline")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--name", default="pendulum", help="of the files in --out")
    parser.add_argument("--overrides", nargs="*", default=[], help="of all runs, beside their budget")
    options = parser.parse_args()
    logs = options.logs.absolute()
    anchors = json.loads(record_logs(logs).read_text())
    scores: dict[str, dict[str, dict[int, float]]] = {log: {method: {} for method in options.methods} for log in LOGS}
    contents = {}
    overrides = [*OVERRIDES, *options.overrides]
    for run in list_runs(logs, options.seeds, options.runs.absolute() / options.name, overrides, options.methods):
        log, method = run.recipe.split("/")
        ends = [float(row[METRIC]) for row in run()["rows"] if row.get(METRIC)]
        scores[log][method][run.seed] = normalise(ends[-1], anchors)
        contents[run.recipe] = run.content
        print(f"{run.recipe}, seed {run.seed}: {scores[log][method][run.seed]:.1f}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": describe_machine(1), "anchors": anchors, "content": contents, "scores": scores}
    result["overrides"] = overrides
    (options.out / f"{options.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    table = format_scores(scores, anchors["returns"], anchors)
    (options.out / f"{options.name}.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
