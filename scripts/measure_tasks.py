"""Measure floor and ceiling of tasks and store them, for `mmrl list tasks`: python scripts/measure_tasks.py [NAME ...]

The scores of the expert, of random answers and of the commonest answer go into docs/results/tasks/NAME.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mmrl.evaluation.task_baselines import measure_baselines
from mmrl.experiments.results import FOLDER
from tests.laws.task_examples import CHOICES, ENVIRONMENTS, build_task, names


def measure(name: str) -> None:
    """Measure one option of conf/task and write its file."""
    row = measure_baselines(build_task(name)).plain()
    path = FOLDER / "tasks" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(row) + "\n")
    print(f"{name}: {row}")


if __name__ == "__main__":
    for option in sys.argv[1:] or sorted((set(names()) | ENVIRONMENTS) - CHOICES):
        measure(option)
