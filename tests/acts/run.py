"""Run a recipe at its own defaults, from its own start, until its mechanism was seen to act."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.experiments.acts import RECORDS, read_conditions, read_header
from mmrl.experiments.content import hash_content
from mmrl.experiments.results import FOLDER
from tests.acts.conditions import Condition
from tests.acts.gradients import term_names
from tests.acts.watch import Actions

STARTS = Path(__file__).parents[2] / "build" / "starts"
"""Where starts that recipes share are cached; MMRL_STARTS names another folder."""
LEAST = 3
"""Iterations that are run in any case."""
QUIET = (
    "data.evaluation=null",
    "trainer.logger=false",
    "trainer.enable_progress_bar=false",
    *(
        f"trainer.callbacks.{name}=null"
        for name in ("progress", "first_prompt", "samples", "videos", "checkpoint", "last", "export")
    ),
    *(f"trainer.callbacks.{name}=null" for name in ("evaluation_plots", "curve")),
)
"""What only records is left out; nothing that changes how a recipe is trained."""


def run_recipe(recipe: str, folder: Path, minutes: float = 20.0, words: Sequence[str] = ()) -> dict[str, Any]:
    """Run a recipe and return its record: what was seen, and the problems.

    Args:
        recipe: its name.
        folder: of the run.
        minutes: of training, after which it is stopped.
        words: further arguments; none in what is recorded.
    """
    os.environ.setdefault("MMRL_STARTS", str(STARTS))
    started = time.monotonic()
    conditions = [Condition.parse(name, text) for name, text in read_conditions(recipe).items()]
    cli = CLI(to_lightning(compose([f"recipe={recipe}", *QUIET, f"run_dir='{folder}'", *words])))
    watch = Actions(conditions, LEAST, minutes)
    cli.trainer.callbacks.append(watch)
    try:
        cli.fit()
        problems = find_problems(watch, conditions, term_names(cli.model), read_header(recipe, "idle"))
    except (ConfigError, ValueError, RuntimeError) as error:
        problems = [
            f"{type(error).__name__} in iteration {len(watch.iterations)}: {' '.join(str(error).split())[:200]}"
        ]
    first_times = {each.name: at for each in conditions if (at := each.find(watch.iterations)) is not None}
    del cli
    gc.collect()
    return {
        "iterations": len(watch.iterations),
        "seconds": round(time.monotonic() - started),
        "rows": min(watch.rows, default=0),
        "acts": {name: [iteration, round(value, 6)] for name, (iteration, value) in first_times.items()},
        "problems": problems,
        "stopped": watch.unfinished,
        "content": hash_content([f"recipe={recipe}"]),
    }


def find_problems(watch: Actions, conditions: Sequence[Condition], terms: set[str], idle: str | None) -> list[str]:
    """What a run that ended did not show."""
    problems = []
    end = f"stopped after {len(watch.rows)}" if watch.unfinished else f"in {len(watch.rows)}"
    for each in conditions:
        if each.find(watch.iterations) is None:
            values = [value for numbers in watch.iterations for value in numbers.get(each.name, ())]
            span = f"from {min(values):.3g} to {max(values):.3g}" if values else "never logged"
            problems.append(f"`{each.name}` is not {each} ({span}; {end} iterations)")
    problems += [f"the term {name} has no gradient ({end} iterations)" for name in sorted(terms - watch.terms)]
    empty = [iteration for iteration, rows in enumerate(watch.rows) if not rows]
    if empty and not idle:
        problems.append(f"no rows in {len(empty)} of {len(watch.rows)} iterations, the first of them {empty[0]}")
    return problems


def draw(recipes: Sequence[str], count: int, commit: str) -> list[str]:
    """Draw recipes by a commit: those whose names have the smallest hashes with it."""
    return sorted(recipes, key=lambda name: hashlib.sha256(f"{commit}/{name}".encode()).hexdigest())[:count]


def write_records(records: Mapping[str, Mapping[str, Any]], folder: Path = FOLDER) -> None:
    """Write the records, one a line, so that two branches that add different recipes merge."""
    lines = [f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted(records.items())]
    (folder / RECORDS).write_text("{\n" + ",\n".join(lines) + "\n}\n")
