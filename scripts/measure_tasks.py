"""Measure floor and ceiling of tasks and store them, for `mmrl list tasks`: python scripts/measure_tasks.py [NAME ...]

The scores of the expert, of random answers and of the commonest answer go into docs/results/tasks/<room>/NAME.json. The
laws of tasks measure them again, so that `--count 128` problems in place of 256 are right where one takes long.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mmrl.evaluation.task_baselines import measure_baselines
from mmrl.experiments.results import result_file
from tests.laws.task_examples import CHOICES, ENVIRONMENTS, build_task, names


def measure(name: str, count: int) -> None:
    """Measure one option of conf/task on `count` problems and write its file."""
    row = measure_baselines(build_task(name), count).plain()
    path = result_file("task", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row) + "\n")
    print(f"{name}: {row}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="options of conf/task; all by default")
    parser.add_argument("--count", type=int, default=256, help="problems")
    options = parser.parse_args()
    for option in options.names or sorted((set(names()) | ENVIRONMENTS) - CHOICES):
        measure(option, options.count)
