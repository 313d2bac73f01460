import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mmrl
from mmrl.__main__ import main
from mmrl.commands.sweep import (
    job_folder,
    to_fit_arguments,
    to_train_overrides,
)
from mmrl.errors import ConfigError
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET, TEXT


def test_short_keys_of_a_sweep_are_spelled_out_and_keep_their_commas():
    out = to_train_overrides(["--multirun", "seed=0,1", "recipe=grpo,rloo", "policy.path=a/b", "run_dir=runs/x"])
    assert out.pop(1).startswith("hydra.searchpath=[")
    assert out[:5] == ["--multirun", "++seed=0,1", "recipe=grpo,rloo", "++model.policy.path=a/b", "++run_dir=runs/x"]
    assert "hydra.sweep.dir=runs/x" in out


def test_hydras_own_flags_pass_and_win_over_ours():
    out = to_train_overrides(["-m", "hydra.sweep.dir=mine", "hydra/launcher=basic", "seed=range(0,3)"])
    assert "hydra.sweep.dir=mine" in out and "hydra/launcher=basic" in out and "++seed=range(0,3)" in out
    assert sum(word.startswith("hydra.sweep.dir=") for word in out) == 1


def test_every_option_of_a_sweep_is_checked():
    with pytest.raises(ConfigError, match="Did you mean 'grpo'"):
        to_train_overrides(["--multirun", "recipe=rloo,grop"])


def test_a_job_gets_the_arguments_that_a_user_would_type():
    typed = ["++model.policy.path=a", "recipe=grpo", "++data.task.sim.renderer=ray", "++trainer.max_epochs=2"]
    assert to_fit_arguments(typed) == ["policy.path=a", "recipe=grpo", "sim.renderer=ray", "trainer.max_epochs=2"]


def test_each_job_has_a_folder_of_its_own():
    assert job_folder("runs/x", None, None) == "runs/x"
    assert job_folder("runs/x", "runs/x", 3) == "runs/x/3"


def test_a_sweep_is_runs_in_numbered_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", quick_python())
    (tmp_path / "rewards.py").write_text("def one(completion):\n    return 1\n\n\ndef two(completion):\n    return 2\n")
    words = (word for word in (*TEXT, *QUIET) if "reward" not in word)
    sweep = ["trainer.max_epochs=1", "run_dir=many", "reward=rewards.py:one,rewards.py:two", "--multirun"]
    assert main(["fit", *words, *sweep]) == 0
    configs = [yaml.safe_load(Path(f"many/{number}/config.yaml").read_text()) for number in (0, 1)]
    names = [config["data"]["init_args"]["reward"]["init_args"]["functions"] for config in configs]
    assert names == [[f"{tmp_path}/rewards.py:one"], [f"{tmp_path}/rewards.py:two"]]
    assert (tmp_path / "many" / "1" / "policy").is_dir() and "run 1:" in capsys.readouterr().out


@pytest.mark.slow
def test_each_run_of_a_sweep_can_have_two_processes(tmp_path):
    words = (word for word in (*TEXT, *QUIET) if word != "trainer.logger=false")
    sweep = ["trainer.max_epochs=1", "trainer.devices=2", "trainer.strategy=ddp", "run_dir=many", "seed=0,1", "-m"]
    environment = {**os.environ, "PYTHONPATH": str(Path(mmrl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mmrl", "fit", *words, *sweep]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for number in (0, 1):
        config = yaml.safe_load((tmp_path / f"many/{number}/config.yaml").read_text())
        assert (config["trainer"]["devices"], config["seed_everything"]) == (2, number)
        assert len(mmrl.Run(tmp_path / f"many/{number}").last_metrics) > 5
    failing = [word.replace("max_epochs=1", "max_epochs=no") for word in command]
    done = subprocess.run(failing, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "max_epochs" in done.stderr and "Traceback" not in done.stderr
