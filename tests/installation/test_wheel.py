"""The wheel, installed without a checkout, beside a folder that has packages of its own named tasks and sims."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
SMALL = ("task=arithmetic", "trainer.max_epochs=1", "data.num_prompts=4", "data.evaluation.count=4")


def run(command: list[str], folder: Path, code: int = 0, **variables: str) -> str:
    """What a command prints, which has to end with a status; of one that fails the errors."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == code, f"{command}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return ran.stderr if code else ran.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the wheel is installed; the other packages are those of the environment of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "--wheel-dir", "dist", str(ROOT)], folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    assert wheel.name.startswith("mmrl_lightning-")
    run([*pip, "install", "--no-deps", "--target", "site", str(wheel)], folder)
    return folder / "site"


def test_the_wheel_has_namespace_packages_and_its_configuration(site):
    assert (site / "tasks" / "arithmetic" / "task.py").is_file() and (site / "mmrl" / "conf" / "config.yaml").is_file()
    assert (site / "mmrl" / "docs" / "results" / "recipes" / "pretrained" / "grpo_smollm2.json").is_file()
    assert not (site / "tasks" / "__init__.py").exists() and not (site / "sims" / "__init__.py").exists()


@pytest.mark.parametrize("regular", [False, True], ids=["namespace", "package with __init__"])
def test_a_first_hour_in_a_folder_of_ones_own(site, tmp_path, regular):
    for name in ("tasks/mine/__init__.py", "sims/mine/__init__.py", *(["tasks/__init__.py"] if regular else [])):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tasks" / "mine" / "task.py").write_text(
        "from tasks.arithmetic.task import Arithmetic\n\n\nclass Mine(Arithmetic):\n    name = 'mine'\n"
    )
    (tmp_path / "rewards.py").write_text("def score(completion, answer):\n    return len(set(completion))\n")
    recipe = tmp_path / "conf" / "recipe" / "mine.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(
        "# @package _global_\n# my sums\ndefaults: [sft]\ndata: {task: {_target_: tasks.mine.task.Mine}}\n"
    )
    mmrl = [sys.executable, str(site / "bin" / "mmrl")]
    path = {"PYTHONPATH": str(site)}

    where = run([sys.executable, "-P", "-c", "import mmrl; print(mmrl.__file__)"], tmp_path, **path)
    assert where.strip() == str(site / "mmrl" / "__init__.py")
    assert run([*mmrl, "--version"], tmp_path, **path).startswith("mmrl 0.")
    assert "my sums" in run([*mmrl, "list", "recipes"], tmp_path, **path)
    words = ["fit", "recipe=grpo", *SMALL, "trainer.callbacks.warm_start=null", "reward=rewards.py:score", "run_dir=r"]
    assert "run folder: r" in run([*mmrl, *words], tmp_path, **path)
    assert "rollout/score/score" in (tmp_path / "r" / "metrics.csv").read_text()
    run([*mmrl, "fit", "recipe=mine", "trainer.max_epochs=1", "data.num_prompts=4", "data.evaluation.count=4",
         "run_dir=m"], tmp_path, **path)  # fmt: skip
    # elsewhere the code of the project needs trust, and where it is it needs none
    refused = run([*mmrl, "evaluate", str(tmp_path / "m")], tmp_path.parent, code=2, **path)
    assert "give trust=true" in refused and str(tmp_path) in refused
    for folder, trust in ((tmp_path.parent, ["trust=true"]), (tmp_path, [])):
        run([*mmrl, "evaluate", str(tmp_path / "m"), *trust], folder, **path)
        (tmp_path / "m" / "evaluation.json").unlink()
