"""The simulator's benchmark runs and says what it measured."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]


def test_one_line_with_both_sides():
    script = str(ROOT / "scripts" / "bench_sim.py")
    words = ["--sim", "push", "--num-envs", "4", "--camera", "16", "--seconds", "0.2", "--threads", "1"]
    done = subprocess.run([quick_python(), script, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    reported = json.loads(line)
    for name in ("steps", "raw_steps", "frames", "raw_frames", "renderer_frames"):
        assert reported[f"{name}_per_second"] > 0
    assert (reported["sim"], reported["num_envs"], reported["threads"], reported["renderer"]) == ("push", 4, 1, "ray")
    assert reported["steps_ratio"] > 0 and reported["frames_ratio"] > 0


def test_processes_are_compared_with_this_one():
    pytest.importorskip("msgpack")
    script = str(ROOT / "scripts" / "bench_sim.py")
    words = [
        "--sim",
        "push",
        "--num-envs",
        "2",
        "--seconds",
        "0.2",
        "--workers",
        "1",
        "--set",
        "observe=[]",
        "threads=1",
    ]
    done = subprocess.run([quick_python(), script, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert reported["in_process_decisions_per_second"] > 0 and reported["workers_1_ratio"] > 0
