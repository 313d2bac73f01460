"""Run the experiment of a recipe over its seeds and store its result: scripts/reproduce.py RECIPE ...

conf/experiment/<room>/<recipe>.yaml has the budget, the compared metric, the seeds and the baseline; its keys are
described in mmrl/experiments/experiment.py. The verdict follows from a Student 95 % interval of the mean over seeds: of
the paired difference to the baseline (method minus baseline, seed by seed), or without one of the gain over the start.
Fractions of held-out problems have Wilson intervals. The result stands in docs/results/recipes/<room>/<recipe>.json.

--all runs each experiment whose result is missing or stale: the configuration, or the code of a part that it names, has
changed since. Runs that have ended are not run again, so an interrupted call can be repeated. Without arguments the
stored results are printed as rows of a Markdown table.

--keep-stored runs only the seeds that the stored result lacks, if configuration and code are those of the stored runs.

--table NAME makes the missing runs of conf/comparison/NAME.yaml, many recipes on several tasks, and writes
docs/results/comparisons/NAME.json and .png, and docs/comparisons/NAME.md. Each run is stored when it has ended. Where
the comparison tunes a setting, the searches on its development seed come first.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mmrl.config.compose import groups
from mmrl.config.option_files import find_option
from mmrl.core.errors import ConfigError
from mmrl.experiments.comparison import Comparison, check_starts, read_cells, read_comparison, result_path
from mmrl.experiments.comparison_page import format_page, plot_comparison
from mmrl.experiments.comparison_runs import ComparedRun, list_missing, run_comparison
from mmrl.experiments.experiment import Experiment, read_experiment
from mmrl.experiments.results import FOLDER, format_result, format_table, read_result, result_state
from mmrl.experiments.runner import ExperimentRun, run_experiments

ROOT = Path(__file__).parent.parent
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def select_experiments(recipes: Sequence[str], stale_only: bool, out: Path, console: Console) -> list[Experiment]:
    """The experiments of the named recipes, or of all recipes whose result is missing or stale."""
    selected = []
    for recipe in groups()["recipe"] if stale_only else recipes:
        experiment = read_experiment(recipe)
        if experiment is None and not stale_only:
            place = find_option("recipe", recipe).name
            raise ConfigError(f"recipe {recipe!r} has no experiment; add conf/experiment/{place}.yaml")
        if experiment is None:
            continue
        if stale_only:
            if (state := result_state(experiment, out)) == "current":
                continue
            console.print(f"{recipe}: {state}")
        selected.append(experiment)
    return selected


def build_summary(recipes: Sequence[str], out: Path, errors: dict[str, str]) -> Table:
    """One row per recipe: its result, or why there is none."""
    summary = Table("recipe", "result", "seeds", "minutes a seed", box=None, pad_edge=False)
    for recipe in recipes:
        result = read_result(recipe, out)
        if recipe in errors or result is None:
            summary.add_row(recipe, errors.get(recipe, "not run"), "", "")
            continue
        minutes = sum(row["seconds"] for row in result["seeds"]) / 60 / len(result["seeds"])
        summary.add_row(recipe, format_result(result), str(len(result["seeds"])), f"{minutes:.1f}")
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--all", action="store_true", help="every experiment whose result is missing or stale")
    parser.add_argument("--table", metavar="NAME", help="a comparison of many recipes")
    parser.add_argument("--only", nargs="+", default=[], help="tasks of the comparison, or methods as TASK/METHOD")
    parser.add_argument("--seeds", type=int, nargs="+", help="in place of those of the experiment")
    parser.add_argument("--jobs", type=int, help="runs at a time; one per core with --all, else 1")
    parser.add_argument("--no-baseline", action="store_true", help="run the method only")
    parser.add_argument("--keep-stored", action="store_true", help="run only the seeds that the stored result lacks")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "experiments")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    console = Console()
    if not options.recipes and not options.all and not options.table:
        print(format_table(options.out))
        return
    try:
        errors = _run_table(options, console) if options.table else _run(options, console)
    except ConfigError as error:
        raise SystemExit(str(error)) from error
    if errors:
        raise SystemExit(1)


def _run(options: argparse.Namespace, console: Console) -> dict[str, str]:
    experiments = select_experiments(options.recipes, options.all, options.out, console)
    workers = options.jobs or ((os.cpu_count() or 1) if options.all else 1)
    paired = not options.no_baseline
    total = sum(len(each.sides(paired)) * len(options.seeds or each.seed_list) for each in experiments)
    with Progress(*COLUMNS, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("experiments", total=total)

        def report(run: ExperimentRun, error: str | None) -> None:
            bar.update(task, advance=1, description=f"{run.recipe}, {run.side}, seed {run.seed}")
            if error:
                console.print(error, style="red")

        folders = options.runs.absolute(), options.out.absolute()
        errors = run_experiments(experiments, options.seeds, workers, *folders, paired, options.keep_stored, report)
    console.print(build_summary([experiment.recipe for experiment in experiments], options.out, errors))
    return errors


def _run_table(options: argparse.Namespace, console: Console) -> dict[str, str]:
    comparison = read_comparison(options.table)
    errors: dict[str, str] = {}
    for _ in ("searches", "seeds") if comparison.tuning else ("seeds",):  # the seeds have the values that were found
        errors |= _run_missing(comparison, options, console)
    write_page(comparison.name, options.out)
    return errors


def _run_missing(comparison: Comparison, options: argparse.Namespace, console: Console) -> dict[str, str]:
    seeds = options.seeds or range(comparison.seeds)
    missing = list(list_missing(comparison, read_cells(comparison, options.out), seeds, options.runs.absolute()))
    if options.only:
        missing = [run for run in missing if run.recipe in options.only or run.recipe.split("/")[0] in options.only]
    workers = options.jobs or os.cpu_count() or 1
    with Progress(*COLUMNS, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("runs", total=len(missing))

        def report(run: ComparedRun, error: str | None) -> None:
            bar.update(task, advance=1, description=f"{run.recipe}, seed {run.seed}")
            if error:
                console.print(error, style="red")

        return run_comparison(comparison, missing, workers, options.out.absolute(), report)


def write_page(name: str, out: Path = FOLDER) -> Path:
    """Write figure and page of a comparison from its stored runs."""
    comparison = read_comparison(name)
    cells = read_cells(comparison, out)
    check_starts(comparison, cells)
    if any(cells.values()):
        plot_comparison(comparison, cells, result_path(name, out).with_suffix(".png"))
    page = out.parent / "comparisons" / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(format_page(comparison, cells))
    return page


if __name__ == "__main__":
    main()
