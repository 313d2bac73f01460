"""Lists of an installed package: the stored results, and what is said where a package has none."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from mmrl.experiments.results import format_result, read_result
from tests.quick_python import quick_python

ROOT = Path(__file__).parents[3]
LISTS = "import sys; from mmrl.__main__ import main; sys.exit(main(['list', *{arguments!r}]))"


@pytest.fixture
def site(tmp_path):
    """The tree that a wheel installs, of links to the checkout."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        (tmp_path / package).mkdir()
        for part in (ROOT / package).iterdir():
            (tmp_path / package / part.name).symlink_to(part)
    for source, target in wheel["force-include"].items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).symlink_to(ROOT / source)
    return tmp_path


def lists(site: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "300"}
    command = [quick_python(), "-P", "-c", LISTS.format(arguments=arguments)]
    ran = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return " ".join(ran.stdout.split())


def test_an_installed_package_shows_the_stored_result_of_a_recipe(site):
    assert format_result(read_result("grpo_smollm2")) in lists(site, "recipes", "grpo_smollm2")


def test_a_package_without_results_says_so(site):
    (site / "mmrl" / "docs" / "results").unlink()
    shown = lists(site, "recipes", "grpo_smollm2")
    assert "not in this installation" in shown and "not measured" not in shown
    assert "-: not in this installation" in lists(site, "recipes") and "-: not in this" in lists(site, "tasks")
