import subprocess
from pathlib import Path

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]


def run(*words):
    command = [quick_python(), "scripts/reproduce.py", *words]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120)


def test_without_a_recipe_the_stored_results_are_printed():
    assert run().stdout.startswith("| `absolute_zero` |")


def test_a_recipe_without_an_experiment_is_refused(tmp_path):
    done = run("reinforce", "--out", str(tmp_path))
    assert done.returncode and "add conf/experiment/losses/reinforce.yaml" in done.stderr
    assert "Traceback" not in done.stderr
