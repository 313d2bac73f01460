"""Run a recipe's experiment over several seeds and write docs/proofs/<recipe>.json: python scripts/prove.py RECIPE.

The experiment stands under `prove:` in the recipe's file:

  prove:
    budget: what every seed may spend, in words
    column: the number that is compared, a column of metrics.csv on held-out problems; first row before, last row after
    target: {before: at most, after: at least}     or gain: at least, in place of after or beside it; may be left out
or, where learning itself is counted (lower is better):
    reach: {column: return_100, at_least: 475}, cost: env_steps, target: {cost: at most}
  and optionally
    seeds: 5                      how many, from 0 on, or [3, 4, 5]: which; 3 where nothing is said
    each: val/mean/tasks      also what becomes of every part, by the columns <each>/<part>/mean: with a target none may
                              end below the Wilson interval that it began with
    words: further words of all runs
    why: what the verdict is put down to, or what it leaves out, in words
    baseline: {name: ..., words: [...]}   another way to spend the same budget, from the same start

The verdict follows from a Student 95 % interval of the mean over seeds: with a baseline of the paired difference to it
(method minus baseline, seed by seed), else of the gain over the start. Every held-out share has its Wilson interval.
What each side spent is written down beside it.
With --all whatever is missing or stale is run: a proof is stale when the configuration or the code of a part that it
names has changed since. Runs that are finished are kept, so that a second call goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mmrl.config.compose import groups
from mmrl.experiments.effect import measured, reached, spent, summary
from mmrl.experiments.figure import curve, plot_curves
from mmrl.experiments.stored import Plan, plan_of, proof_of, state, table, told

ROOT = Path(__file__).parent.parent


class RunFailed(Exception):
    """A fit that ended with an error; the message names its log."""


@dataclass(frozen=True)
class Job:
    """One fit: a side of a recipe's comparison with one seed."""

    recipe: str
    side: str
    seed: int
    words: tuple[str, ...]
    content: str
    folder: Path

    def __call__(self) -> dict[str, Any]:
        """Run in a process of its own unless that is done; the metrics rows and the seconds that it took."""
        command = ["-m", "mmrl", "fit", *self.words, f"seed={self.seed}", f"run_dir={self.folder}"]
        receipt = self.folder / "receipt.json"  # what a finished run was asked for, so that it need not run again
        asked = {"command": command, "content": self.content}
        known = json.loads(receipt.read_text()) if receipt.exists() else {}
        if {key: known.get(key) for key in asked} != asked:
            known = asked | {"seconds": self._run(command)}
            receipt.write_text(json.dumps(known) + "\n")
        with (self.folder / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        return {"rows": rows, "seconds": known["seconds"], "seed": self.seed}

    def _run(self, command: Sequence[str]) -> float:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        with (self.folder.parent / f"{self.folder.name}.log").open("w") as log:
            done = subprocess.run(
                [sys.executable, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=_environment() | {"MMRL_STARTS": str(self.folder.parent.parent / "starts")},
            )
        if done.returncode:
            raise RunFailed(f"mmrl fit {' '.join(command[3:])} failed; see {log.name}")
        return round(time.perf_counter() - started, 1)


def _environment() -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}


def jobs_of(plan: Plan, contents: dict[str, str], seeds: Sequence[int], runs: Path, alone: bool = False) -> list[Job]:
    """All fits of a recipe's experiment."""
    return [
        Job(plan.recipe, side, seed, tuple(words), contents[side], runs / plan.recipe / f"{side}-{seed}")
        for seed in seeds
        for side, words in plan.sides(alone).items()
    ]


def proof(
    plan: Plan, contents: dict[str, str], results: dict[tuple[str, int], dict[str, Any]], machine: str
) -> dict[str, Any]:
    """What the results of all sides and seeds say; `contents` are the hashes with which they were run."""
    prove, sides, watched = plan.prove, list(contents), plan.prove.get("column") or plan.prove.reach.column
    by_side = {side: [result for (of, _), result in results.items() if of == side] for side in sides}

    def read(side: str) -> list[dict[str, Any]]:
        if "reach" in prove:
            return [reached(result, prove.reach, prove.cost) for result in by_side[side]]
        return [measured(result, prove.column, prove.get("each")) for result in by_side[side]]

    method, baseline = read("method"), read("baseline") if "baseline" in sides else None
    return {
        "recipe": plan.recipe,
        "budget": prove.budget,
        "compared": plan.compared,
        "target": dict(prove.get("target") or {}),
        **summary(prove, method, baseline),
        "seeds": method,
        "baseline": {"name": prove.baseline.name, "seeds": baseline} if baseline else "the start",
        "spent": {side: spent(by_side[side]) for side in sides},
        "content": contents,
        "machine": machine,
        "watched": watched,
        "curves": {side: [curve(result["rows"], watched) for result in by_side[side]] for side in sides},
    }


def write(made: dict[str, Any], out: Path) -> Path:
    """The proof as JSON, and its image beside it."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{made['recipe']}.json"
    head = json.dumps({key: value for key, value in made.items() if key != "curves"}, indent=2)
    curves = ",\n".join(f'    "{side}": {json.dumps(runs)}' for side, runs in made["curves"].items())
    path.write_text(f'{head[:-2]},\n  "curves": {{\n{curves}\n  }}\n}}\n')  # a run's points on one line
    plot_curves(made, path.with_suffix(".png"))
    return path


def prove(
    plans: Sequence[Plan],
    seeds: Sequence[int] | None,
    workers: int,
    runs: Path,
    out: Path,
    alone: bool = False,
    done: Callable[[Job, str | None], None] = lambda job, error: None,
) -> dict[str, str]:
    """Run what the plans need, `workers` at a time, and write each proof when its last run is in; errors by recipe.

    Without `seeds` every plan is run on those that it asks for.
    """
    for plan in plans:
        plan.refuse_early_ends(alone)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {workers} runs at a time"
    errors: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[str, int] = {}
        results: dict[str, dict[tuple[str, int], dict[str, Any]]] = {plan.recipe: {} for plan in plans}
        futures: dict[Future, tuple[Plan, Job]] = {}
        contents = {plan.recipe: plan.content(alone) for plan in plans}
        for plan in plans:
            made = jobs_of(plan, contents[plan.recipe], seeds or plan.seeds, runs, alone)
            waiting[plan.recipe] = len(made)
            results[plan.recipe] = {(job.side, job.seed): {} for job in made}  # in order, whoever is ready first
            futures |= {pool.submit(job): (plan, job) for job in made}
        for future in as_completed(futures):
            plan, job = futures[future]
            waiting[plan.recipe] -= 1
            try:
                results[plan.recipe][job.side, job.seed] = future.result()
                if not waiting[plan.recipe] and plan.recipe not in errors:
                    write(proof(plan, contents[plan.recipe], results[plan.recipe], machine), out)
            except (RunFailed, SystemExit) as error:
                errors[plan.recipe] = str(error)
            done(job, errors.get(plan.recipe))
    return errors


def summary_table(recipes: Sequence[str], out: Path, errors: dict[str, str]) -> Table:
    """One row per recipe: what its proof says, or why there is none."""
    shown = Table("recipe", "verdict", "seeds", "minutes a seed", box=None, pad_edge=False)
    for recipe in recipes:
        made = proof_of(recipe, out)
        if recipe in errors or made is None:
            shown.add_row(recipe, errors.get(recipe, "not run"), "", "")
            continue
        minutes = sum(row["seconds"] for row in made["seeds"]) / 60 / len(made["seeds"])
        shown.add_row(recipe, told(made), str(len(made["seeds"])), f"{minutes:.1f}")
    return shown


def chosen(recipes: Sequence[str], everything: bool, out: Path, console: Console) -> list[Plan]:
    """The plans of the recipes named, or of all whose proof is missing or stale."""
    plans = []
    for recipe in groups()["recipe"] if everything else recipes:
        plan = plan_of(recipe)
        if plan is None and not everything:
            raise SystemExit(f"recipe {recipe!r} has no `prove:` section; add one to conf/recipe/{recipe}.yaml")
        if plan is None:
            continue
        if everything and (status := state(plan, out)) != "current":
            console.print(f"{recipe}: {status}")
        elif everything:
            continue
        plans.append(plan)
    return plans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", help="left out: print the proofs that there are as a Markdown table")
    parser.add_argument("--all", action="store_true", help="every recipe whose proof is missing or stale")
    parser.add_argument("--seeds", type=int, nargs="+", help="left out: those that the recipe asks for")
    parser.add_argument("--jobs", type=int, help="runs at a time; one per core with --all, else 1")
    parser.add_argument("--alone", action="store_true", help="leave the baseline out")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "proofs")
    options = parser.parse_args()
    console = Console()
    if not options.recipes and not options.all:
        print(table(options.out))
        return
    plans = chosen(options.recipes, options.all, options.out, console)
    jobs = options.jobs or ((os.cpu_count() or 1) if options.all else 1)
    fits = sum(len(plan.sides(options.alone)) * len(options.seeds or plan.seeds) for plan in plans)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        line = bar.add_task("proofs", total=fits)

        def done(job: Job, error: str | None) -> None:
            bar.update(line, advance=1, description=f"{job.recipe}, {job.side}, seed {job.seed}")
            if error:
                console.print(error, style="red")

        errors = prove(plans, options.seeds, jobs, options.runs.absolute(), options.out.absolute(), options.alone, done)
    console.print(summary_table([plan.recipe for plan in plans], options.out, errors))
    if errors:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
