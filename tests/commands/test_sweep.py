import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mmrl
from mmrl.__main__ import main
from mmrl.commands.fit import train
from mmrl.commands.results.sweep_table import FILE, JobResult, read_jobs, stamp_jobs, write_job
from mmrl.commands.sweep import (
    job_folder,
    require_plugins,
    run_sweep,
    to_fit_arguments,
    to_train_overrides,
)
from mmrl.core.errors import ConfigError
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


@pytest.mark.parametrize(
    ("choice", "package"),
    [("sweeper=nevergrad", "hydra-nevergrad-sweeper"), ("launcher=submitit", "hydra-submitit-launcher")],
)
def test_a_plugin_that_is_not_installed_is_named(choice, package, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        require_plugins(["recipe=grpo", f"hydra/{choice}"])
    require_plugins(["hydra/sweeper=basic", "hydra/sweeper=mine"])


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
    more = [
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "evaluation=null",
        "run_dir=lr=1e-4",
        "--multirun",
    ]
    sweep = [*more, "reward=rewards.py:one,rewards.py:two"]
    assert main(["fit", *words, *sweep]) == 0
    many = Path("lr=1e-4")
    configs = [yaml.safe_load((many / f"{number}/config.yaml").read_text()) for number in (0, 1)]
    assert all(config["data"]["init_args"]["evaluation"] is None for config in configs)
    names = [config["data"]["init_args"]["reward"]["init_args"]["functions"] for config in configs]
    assert names == [[f"{tmp_path}/rewards.py:one"], [f"{tmp_path}/rewards.py:two"]]
    shown = capsys.readouterr().out
    assert (many / "1" / "policy").is_dir() and "run 1:" in shown and "results: lr=1e-4/results.csv" in shown
    rows = list(csv.DictReader((many / "results.csv").open()))
    assert [(row["run"], row["reward"]) for row in rows] == [("0", "rewards.py:one"), ("1", "rewards.py:two")]
    with pytest.raises(SystemExit):
        main(["fit", *words, *more, "seed=0"])
    assert "overwrite=true, which removes that run" in capsys.readouterr().err
    assert main(["fit", *words, *more, "seed=0", "overwrite=true"]) == 0


def test_results_are_those_of_this_sweep_though_the_clock_was_set_back(tmp_path):
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        write_job(JobResult(number, [], "m", 0.0), tmp_path / str(number))
    earlier = stamp_jobs(tmp_path)
    write_job(JobResult(1, [], "m", 1.0), tmp_path / "1")
    (tmp_path / "2").mkdir()
    write_job(JobResult(2, [], "m", 2.0), tmp_path / "2")
    for number in (1, 2):
        os.utime(tmp_path / str(number) / FILE, (0, 0))
    assert [(result.number, result.value) for result in read_jobs(tmp_path, earlier)] == [(1, 1.0), (2, 2.0)]


@pytest.mark.parametrize(
    "values, message",
    [
        ("data.group_size=glob(*)", "glob selects options of a group"),
        ("seed=glob(*)", "glob selects options of a group"),
        ("optimizer.lr=sort(glob(1*))", "glob selects options of a group"),
        ("seed=range(3,3)", "the sweep has no run"),
        ("recipe=glob(no_such_recipe*)", "the sweep has no run"),
    ],
)
def test_a_sweep_without_a_run_is_refused(values, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        run_sweep(["--multirun", values, "run_dir=none"], train)


def test_a_search_maximises_unless_it_is_told_otherwise():
    assert "hydra.sweeper.direction=maximize" in to_train_overrides(["-m", "hydra/sweeper=optuna"])
    out = to_train_overrides(["-m", "hydra/sweeper=optuna", "hydra.sweeper.direction=minimize"])
    assert [word for word in out if "direction" in word] == ["hydra.sweeper.direction=minimize"]


SEARCH = """
import json
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class Search(Sweeper):
    def __init__(self, out):
        self.out = out

    def setup(self, *, hydra_context, task_function, config):
        self.config, plugins = config, Plugins.instance()
        self.launcher = plugins.instantiate_launcher(
            config=config, hydra_context=hydra_context, task_function=task_function)

    def sweep(self, arguments):
        fixed = [word for word in arguments if "seed" not in word]
        values = []
        for number in range(2):
            (job,) = self.launcher.launch([[*fixed, f"++seed={number}"]], initial_job_idx=number)
            values.append(float(job.return_value))
        with open(self.out, "w") as file:
            json.dump(values, file)

ConfigStore.instance().store(
    group="hydra/sweeper", name="search", provider="search",
    node={"_target_": "hydra_plugins.search.Search", "out": "values.json"})
"""
"""A plugin of Hydra that searches, as Optuna's does: it launches trials and makes floats of what they return."""


@pytest.mark.parametrize(
    "words, code, message",
    [
        ([], 0, "results: many/results.csv"),
        (["metric=val/no"], 2, "metric=val/no: run 0 has no such metric; it has val/greedy/exact/"),
        (["data.evaluation=null"], 2, "hydra/sweeper=search searches for the best held-out mean"),
    ],
    ids=["held-out mean", "unknown metric", "nothing measured"],
)
def test_the_held_out_mean_is_the_objective_of_a_search(words, code, message, tmp_path):
    (tmp_path / "hydra_plugins").mkdir()
    (tmp_path / "hydra_plugins" / "search.py").write_text(SEARCH)
    given = [word for word in (*TEXT, *QUIET) if not (words and "evaluation" in words[0] and "evaluation" in word)]
    command = [
        "fit",
        *given,
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "run_dir=many",
        "-m",
        "hydra/sweeper=search",
        *words,
    ]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(mmrl.__file__).parents[1]}"}
    line = [quick_python(), "-m", "mmrl", *command]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr[-3000:]
    assert message in done.stdout + done.stderr and "Traceback" not in done.stderr
    if code == 0:
        rows = list(csv.DictReader((tmp_path / "many" / "results.csv").open()))
        values = [float(row["val/greedy/exact/mean"]) for row in rows]
        assert values == json.loads((tmp_path / "values.json").read_text())


@pytest.mark.slow
def test_each_run_of_a_sweep_can_have_two_processes(tmp_path):
    words = (word for word in (*TEXT, *QUIET) if word != "trainer.logger=false")
    sweep = [
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "trainer.devices=2",
        "trainer.strategy=ddp",
        "run_dir=many",
        "seed=0,1",
        "-m",
    ]
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
