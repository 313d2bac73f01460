"""sdist and wheel: their files, their metadata, and a text run in an environment that has nothing else."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from mmrl.core.installation.optional_packages import DISTRIBUTIONS, EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def distribution(tmp_path_factory) -> Path:
    """The folder of sdist and wheel; the back end is called as `python -m build` calls it, in this environment."""
    pytest.importorskip("hatchling", reason="pip install 'mmrl-lightning[package]' installs it")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distribution) -> zipfile.ZipFile:
    (file,) = distribution.glob("mmrl_lightning-*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_has_every_module_and_option_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode or not tracked.stdout:
        pytest.skip("no git here")
    places = {"mmrl/": "mmrl/", "tasks/": "tasks/", "sims/": "sims/", "conf/": "mmrl/conf/"}
    places["docs/results/"] = "mmrl/docs/results/"
    expected = {
        name.replace(start, target, 1)
        for name in tracked.stdout.splitlines()
        for start, target in places.items()
        if name.startswith(start) and (ROOT / name).exists()
    }
    assert expected <= names
    assert {name.split("/")[0] for name in names} == {"mmrl", "tasks", "sims"}
    assert not any(name.endswith((".pyc", ".ckpt", ".safetensors")) or "/tests/" in name for name in names)


def test_the_metadata_names_the_extras_and_their_packages(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Name"] == "mmrl-lightning" and metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(EXTRAS) <= set(metadata.get_all("Provides-Extra"))
    lines = metadata.get_all("Requires-Dist")
    always = {re.split(r"[\[<>=!~; ]", line)[0] for line in lines if "extra ==" not in line}
    assert len(always) == len(PROJECT["dependencies"]) and not always & set(DISTRIBUTIONS.values())
    assert "mmrl = mmrl.__main__:main" in wheel.read(name.replace("METADATA", "entry_points.txt")).decode()


def test_the_sdist_has_what_a_wheel_is_built_from(distribution):
    (file,) = distribution.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "mmrl/__main__.py",
        "conf/config.yaml",
        "tasks/mixture/task.py",
    } <= names
    assert not any(name.startswith((".venv", "runs/", "build/")) for name in names)


@pytest.mark.slow
def test_twine_accepts_what_build_makes(tmp_path):
    for module in ("build", "twine"):
        pytest.importorskip(module, reason="pip install 'mmrl-lightning[package]' installs it")
    python = [sys.executable, "-m"]
    subprocess.run([*python, "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)], check=True)
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) == 2
    ran = subprocess.run([*python, "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.count("PASSED") == 2, ran.stdout


@pytest.mark.slow
def test_the_wheel_alone_trains_a_text_policy_in_an_empty_environment(distribution, tmp_path):
    """Installs torch and all other dependencies, without an extra."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    programs = tmp_path / "env" / "bin"
    (file,) = distribution.glob("*.whl")
    pip = [str(programs / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-compile"]
    subprocess.run([*pip, str(file)], check=True)
    (tmp_path / "empty").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def mmrl(*arguments: str) -> subprocess.CompletedProcess:
        command = [str(programs / "mmrl"), *arguments]
        return subprocess.run(command, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True)

    small = ("trainer.max_epochs=1", "data.num_prompts=4", "data.evaluation.count=4", "run_dir=r")
    ran = mmrl("fit", "recipe=grpo", "policy=tiny_text", "trainer.callbacks.warm_start=null", *small)
    assert ran.returncode == 0 and "run folder: r" in ran.stdout, ran.stderr
    assert mmrl("evaluate", "r", "count=4").returncode == 0
    missing = mmrl("fit", "recipe=demo_vla")
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1, missing.stderr
    assert re.search(r"needs the package \w+: pip install 'mmrl-lightning\[(sim|vla)\]'", missing.stderr)
