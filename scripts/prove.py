"""Run a recipe's experiment over several seeds and write docs/proofs/<recipe>.json: python scripts/prove.py RECIPE.

The experiment stands under `prove:` in the recipe's file:

  prove:
    budget: what every seed may spend, in words
    column: the number that is compared, a column of metrics.csv on held-out problems; first row before, last row after
    target: {before: at most, after: at least}     or gain: at least, in place of after or beside it
or, where learning itself is counted (lower is better):
    reach: {column: return_100, at_least: 475}, cost: env_steps, target: {cost: at most}
  and optionally
    words: further words of the runs
    baseline: {name: ..., words: [...]}   another way to spend the same budget, from the same start

An effect is the mean over seeds with a Student 95 % interval; every held-out share has its Wilson interval.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from mmrl.config import compose
from mmrl.evaluation.intervals import disjoint, wilson

ROOT = Path(__file__).parent.parent
STUDENT_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""


def interval(values: list[float]) -> tuple[float, float]:
    """Student 95 % interval of the mean over seeds."""
    if len(values) < 2:
        return (-math.inf, math.inf)
    half = STUDENT_95[len(values) - 1] * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def run(recipe: str, words: list[str], folder: Path, seed: int) -> dict[str, Any]:
    """One fit in its own process; returns its metrics rows and the seconds that it took."""
    command = [sys.executable, "-m", "mmrl", "fit", f"recipe={recipe}", *words, f"seed={seed}", f"run_dir={folder}"]
    receipt = folder / "receipt.json"  # what a finished run was asked for, so that it need not run again
    if not receipt.exists() or json.loads(receipt.read_text())["command"] != command[1:]:
        shutil.rmtree(folder, ignore_errors=True)
        started = time.perf_counter()
        with (folder.parent / f"{folder.name}.log").open("w") as log:
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=_environment())
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed; see {log.name}")
        seconds = round(time.perf_counter() - started, 1)
        receipt.write_text(json.dumps({"command": command[1:], "seconds": seconds}) + "\n")
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {"rows": rows, "seconds": json.loads(receipt.read_text())["seconds"], "seed": seed}


def _environment() -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}


def held_out(result: dict[str, Any], column: str) -> dict[str, Any]:
    """The share before and after, with Wilson intervals over the held-out problems."""
    rows = [row for row in result["rows"] if row.get(column)]
    if len(rows) < 2:
        raise SystemExit(f"{column} is not in metrics.csv twice; was the evaluation on?")
    count = column.rsplit("/", 1)[0] + "/n"
    before, after = ((float(row[column]), int(float(row[count]))) for row in (rows[0], rows[-1]))
    bounds = [wilson(share * n, n) for share, n in (before, after)]
    return {
        "seed": result["seed"],
        "before": before[0],
        "after": after[0],
        "episodes": after[1],
        "wilson_before": bounds[0],
        "wilson_after": bounds[1],
        "disjoint": disjoint(*bounds),
        "seconds": result["seconds"],
    }


def reached(result: dict[str, Any], reach: dict[str, Any], cost: str) -> dict[str, Any]:
    """What had been spent when the column first reached its level; null when it never did."""
    rows = [row for row in result["rows"] if row.get(reach["column"])]
    hit = next((row for row in rows if float(row[reach["column"]]) >= reach["at_least"]), None)
    return {"seed": result["seed"], "cost": float(hit[cost]) if hit else None, "seconds": result["seconds"]}


def summary(plan: dict[str, Any], seeds: list[dict[str, Any]], baseline: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Effect, interval, verdict, and whether the target is met on every seed."""
    target = plan["target"]
    if "reach" in plan:
        costs = [row["cost"] for row in seeds]
        met = all(cost is not None and cost <= target["cost"] for cost in costs)
        found = [cost for cost in costs if cost is not None]
        out = {"mean_cost": mean(found) if found else None, "interval": interval(found), "target_met": met}
        return {**out, "verdict": "helps" if met else "no effect at this scale"}
    effects = [row["after"] - row["before"] for row in seeds]
    low, high = interval(effects)
    met = all(_met(row, target) for row in seeds)
    out = {"effect": mean(effects), "interval": (low, high), "target_met": met}
    if baseline:
        gains = [row["after"] - other["after"] for row, other in zip(seeds, baseline)]
        out |= {"effect_over_baseline": mean(gains), "interval_over_baseline": interval(gains)}
    return {**out, "verdict": "helps" if low > 0 else "hurts" if high < 0 else "no effect at this scale"}


def _met(row: dict[str, Any], target: dict[str, float]) -> bool:
    """Whether one seed does what the recipe says of all."""
    enough = row["after"] >= target.get("after", 0) and row["after"] - row["before"] >= target.get("gain", 0)
    return row["before"] <= target["before"] and enough and row["disjoint"]


def prove(recipe: str, seeds: list[int], jobs: int, out: Path, alone: bool = False) -> dict[str, Any]:
    """All seeds of the recipe and of its baseline, and their summary."""
    plan = compose([f"recipe={recipe}"]).get("prove")
    if plan is None:
        raise SystemExit(f"recipe {recipe!r} has no `prove:` section; add one to conf/recipe/{recipe}.yaml")
    base = out / recipe
    base.mkdir(parents=True, exist_ok=True)
    sides = {"method": [*plan.get("words", [])]}
    if plan.get("baseline") and not alone:
        sides["baseline"] = list(plan.baseline.words)
    tasks = [(side, seed) for seed in seeds for side in sides]

    def one(task: tuple[str, int]) -> dict[str, Any]:
        side, seed = task
        return run(recipe, sides[side], base / f"{side}-{seed}", seed)

    with ThreadPoolExecutor(jobs) as pool:
        results = dict(zip(tasks, pool.map(one, tasks)))

    def read(side: str) -> list[dict[str, Any]]:
        found = [results[side, seed] for seed in seeds]
        return [reached(r, plan.reach, plan.cost) if "reach" in plan else held_out(r, plan.column) for r in found]

    method, baseline = read("method"), read("baseline") if "baseline" in sides else None
    return {
        "recipe": recipe,
        "budget": plan.budget,
        "compared": plan.get("column") or f"{plan.cost} until {plan.reach.column} >= {plan.reach.at_least}",
        "target": dict(plan.target),
        **summary(dict(plan), method, baseline),
        "seeds": method,
        "baseline": {"name": plan.baseline.name, "seeds": baseline} if baseline else "the start",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jobs} runs at a time",
    }


def table(folder: Path) -> str:
    """The proofs of a folder as rows of a Markdown table."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        proof = json.loads(path.read_text())
        seeds = proof["seeds"]
        minutes = mean(row["seconds"] for row in seeds) / 60
        if "cost" in seeds[0]:
            before, after = (
                proof["compared"],
                ", ".join("never" if r["cost"] is None else f"{r['cost']:,.0f}" for r in seeds),
            )
        else:
            before, after = (", ".join(f"{100 * row[key]:.1f} %" for row in seeds) for key in ("before", "after"))
        rows.append(f"| `{proof['recipe']}` | {before} | {after} | {len(seeds)} | {minutes:.1f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", help="left out: print the proofs that there are as a Markdown table")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--alone", action="store_true", help="leave the baseline out")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "proofs")
    options = parser.parse_args()
    if options.recipe is None:
        print(table(options.out))
        return
    proof = prove(options.recipe, options.seeds, options.jobs, options.runs, options.alone)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.recipe}.json"
    path.write_text(json.dumps(proof, indent=2) + "\n")
    for row in proof["seeds"]:
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})
    shown = {
        key: proof[key]
        for key in ("effect", "mean_cost", "interval", "effect_over_baseline", "verdict", "target_met")
        if key in proof
    }
    print(shown)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
