"""What `mmrl new` writes passes its own test and trains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mmrl
from mmrl.__main__ import main
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET

TEXT = ("policy.hidden_size=32", "data.num_prompts=4", "data.group_size=4", "data.num_minibatches=2",
        "data.evaluation.count=4", "trainer.callbacks.warm_start=null")  # fmt: skip
CONTROL = ("rollout.num_envs=2", "rollout.horizon=16", "data.evaluation.count=2")
KINDS = {
    "reward": (["recipe=grpo", "reward=my_own.py:my_own"], TEXT),
    "task": (["recipe=grpo", "task=my_own"], TEXT),
    "sim": (["recipe=ppo_control", "sim=my_own"], CONTROL),
    "recipe": (["recipe=my_own"], TEXT),
    "recipe slot=annotator": (["recipe=my_own"], TEXT),
    "recipe slot=weighting part=Mine": (["recipe=my_own"], TEXT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_its_test_and_trains(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command, *options = kind.split()
    assert main(["new", command, "my_own", *options]) == 0
    *written, last = capsys.readouterr().out.split("\n")[:-1]
    assert all(Path(path).is_file() for path in written) and "tests/test_my_own.py" in written
    environment = {**os.environ, "PYTHONPATH": str(Path(mmrl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    tested = subprocess.run(
        [quick_python(), "-P", "-m", "pytest", "-q", "tests"], env=environment, capture_output=True, text=True
    )
    assert tested.returncode == 0 and " passed" in tested.stdout, tested.stdout
    words, small = KINDS[kind]
    assert last.endswith(" ".join(["mmrl fit", *words]))
    small = [word for word in small if "hidden_size" not in word]
    try:
        assert main(["fit", *words, *QUIET, *small, "trainer.max_epochs=1", "run_dir=run"]) == 0
    finally:
        for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(tmp_path))]:
            del sys.modules[name]
    if "part=Mine" in kind:
        config = yaml.safe_load(Path("run/config.yaml").read_text())
        assert config["data"]["init_args"]["weighting"]["class_path"] == "my_own.Mine"
    assert main(["new", command, "my_own", *options]) == 2
    assert "already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a kind and a name"),
        (["policy", "x"], "give a kind and a name"),
        (["task", "My-Task"], "a name has lower-case letters"),
        (["task", "class"], "a name has lower-case letters"),
        (["task", "arithmetic"], "there is a task 'arithmetic' already"),
        (["reward", "json"], "json.py would have the name of a module that is there"),
        (["recipe", "x_y", "slot=nope"], "slot=nope: must be one of term, annotator, weighting"),
        (["task", "x_y", "slot=term"], "slot: unknown option"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
