"""The walk of CONTRIBUTING.md, in a copy of the checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from mmrl.experiments.paper_numbers import replace_numbers
from mmrl.experiments.papers import render_pages
from mmrl.runs.metrics_csv import read_rows
from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    for folder in ("conf", "mmrl", "tests", "scripts", "tasks", "sims", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.gif"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def read_files(folder: Path) -> dict[Path, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file: file.read_bytes() for file in files}


def run(line: str, folder: Path, **keywords):
    words = line.replace("python ", f"{quick_python()} ", 1)
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, shell=True, cwd=folder, env=environment, text=True, capture_output=True, **keywords)


def test_the_walk_of_contributing_works_as_it_stands(checkout):
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("### In ten minutes\n```sh\n")[2].partition("```")[0]
    lines = text.strip().replace("\\\n", " ").splitlines()
    assert len(lines) == 4
    before = read_files(checkout)
    for line in lines:
        done = run(line, checkout)
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        if " new " in line:
            after = read_files(checkout)
            assert len(after) - len(before) == 4 and before.items() <= after.items()  # no file that was there changed
        if "pytest" in line:
            assert " passed" in done.stdout and "failed" not in done.stdout
        if " fit " in line:
            assert "nothing was learned" not in done.stdout and "left no episode" not in done.stderr
            (metrics,) = checkout.glob("runs/plain_gradient/*/metrics.csv")
            losses = [float(row["train/plain_gradient"]) for row in read_rows(metrics)]
            assert len(losses) == 1 and losses[0] != 0
    pages = [page.read_text() for page in (checkout / "docs" / "papers").glob("*.md")]
    assert sum("| [`plain_gradient`](#plain_gradient) |" in page for page in pages) == 1
    lint = run("python -m ruff check conf mmrl tests scripts", checkout)
    assert lint.returncode == 0, lint.stdout


@pytest.mark.parametrize("slot", ["annotator", "weighting"])
def test_every_kind_of_part_begins_with_something_that_works(checkout, slot):
    assert run(f"python -m mmrl new method my_part theme=losses slot={slot}", checkout).returncode == 0
    done = run("python -m pytest -q tests/methods/losses/test_my_part.py", checkout)
    assert done.returncode == 0, done.stdout
    lint = run("python -m ruff check mmrl tests", checkout)
    assert lint.returncode == 0, lint.stdout
    method = yaml.safe_load((checkout / "conf" / "method" / "losses" / "my_part.yaml").read_text())
    recipe = yaml.safe_load((checkout / "conf" / "recipe" / "losses" / "my_part.yaml").read_text())
    assert "MyPart" in str(method) and recipe["defaults"][0] == {"override /method": "my_part"}
    again = run(f"python -m mmrl new method my_part theme=losses slot={slot}", checkout)
    assert again.returncode and "choose another name" in again.stderr
    themeless = run("python -m mmrl new method other", checkout)
    assert themeless.returncode and "theme=THEME is missing; it is one of advantages," in themeless.stderr
    left = run("python -m pytest -q tests/commands/new/test_placeholders.py -k placeholder_is_left", checkout)
    assert left.returncode and "conf/method/losses/my_part.yaml" in left.stdout


def test_names_that_are_no_names_are_refused(checkout):
    done = run("python -m mmrl new recipe My-Part", checkout)
    assert done.returncode and "lower-case letters" in done.stderr


def test_the_index_of_papers_is_current():
    """Where this fails: python scripts/paper_index.py."""
    folder = ROOT / "docs" / "papers"
    assert {file.name: file.read_text() for file in folder.iterdir()} == render_pages()
    assert (ROOT / "docs" / "recipes.md").read_text() == replace_numbers(ROOT / "docs" / "recipes.md")
