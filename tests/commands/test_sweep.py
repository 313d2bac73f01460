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


def test_a_group_that_is_taken_out_is_deleted_from_hydras_defaults():
    out = to_train_overrides(["--multirun", "recipe=grpo", "evaluation=null", "seed=0,1"])
    assert "~evaluation" in out and to_fit_arguments(["~evaluation=null", "~sim"]) == ["evaluation=null", "sim=null"]
    with pytest.raises(ConfigError, match="evaluation=text,null: null takes evaluation out"):
        to_train_overrides(["--multirun", "evaluation=text,null"])


def test_texts_that_hydra_does_not_parse_are_quoted_each_by_itself():
    out = to_train_overrides(["--multirun", "run_dir=runs/lr=1e-4", "policy.path=a,b=1", "data.num_prompts=4,8"])
    assert "++run_dir='runs/lr=1e-4'" in out and "hydra.sweep.dir='runs/lr=1e-4'" in out
    assert "++model.policy.path=a,'b=1'" in out and "++data.num_prompts=4,8" in out
    with pytest.raises(ConfigError, match=r"data.num_prompts=\[4: the value cannot be read"):
        to_train_overrides(["--multirun", "data.num_prompts=[4,8"])
    with pytest.raises(ConfigError, match="run_dir=a,b: name one folder"):
        to_train_overrides(["--multirun", "run_dir=a,b"])


def test_each_job_has_a_folder_of_its_own():
    assert job_folder("runs/x", None, None) == "runs/x"
    assert job_folder("runs/x", "runs/x", 3) == "runs/x/3"


def test_a_sweep_is_runs_in_numbered_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", quick_python())
    (tmp_path / "rewards.py").write_text("def one(completion):\n    return 1\n\n\ndef two(completion):\n    return 2\n")
    words = (word for word in (*TEXT, *QUIET) if "reward" not in word)
    words = [word for word in words if "evaluation" not in word]
    more = ["trainer.max_epochs=1", "evaluation=null", "run_dir=lr=1e-4", "--multirun"]
    sweep = [*more, "reward=rewards.py:one,rewards.py:two"]
    assert main(["fit", *words, *sweep]) == 0
    many = Path("lr=1e-4")
    configs = [yaml.safe_load((many / f"{number}/config.yaml").read_text()) for number in (0, 1)]
    assert all(config["data"]["init_args"]["evaluation"] is None for config in configs)
    names = [config["data"]["init_args"]["reward"]["init_args"]["functions"] for config in configs]
    assert names == [[f"{tmp_path}/rewards.py:one"], [f"{tmp_path}/rewards.py:two"]]
    assert (many / "1" / "policy").is_dir() and "run 1:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["fit", *words, *more, "seed=0"])
    assert "overwrite=true, which removes that run" in capsys.readouterr().err
    assert main(["fit", *words, *more, "seed=0", "overwrite=true"]) == 0


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
