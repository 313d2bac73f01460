"""The script that times verifiers and reward functions."""

import json
import os
import subprocess
from pathlib import Path

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]


def run(*words):
    command = [quick_python(), str(ROOT / "scripts" / "bench_rewards.py"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def test_one_line_for_each_name():
    done = run(
        "tag_format", "extract/boxed", "task/strings", "task/code", "problems/small_grounding", "--seconds", "0.1"
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == [
        *("tag_format", "extract/boxed", "task/strings", "task/code", "problems/small_grounding")
    ]
    assert [row["count"] for row in rows] == [500, 500, 64, 64, 64]
    assert all(row["items_per_second"] > 0 for row in rows)


def test_an_unknown_name_is_refused():
    done = run("task/nothing")
    assert done.returncode == 2 and "task/nothing" in done.stderr
