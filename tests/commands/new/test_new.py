"""What `mmrl new` writes passes its own test and trains."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

import mmrl
from mmrl.__main__ import main
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET

TEXT = ("policy.hidden_size=32", "data.num_prompts=4", "data.group_size=4", "data.num_minibatches=2",
        "data.evaluation.count=4", "trainer.callbacks.warm_start=null")  # fmt: skip
CONTROL = ("rollout.num_envs=2", "rollout.horizon=16", "data.evaluation.count=2")
KINDS = {
    "reward": (["recipe=grpo", "reward=my_own.py:my_own"], TEXT),
    "task": (["recipe=grpo", "task=my_own"], TEXT),
    "sim": (["recipe=ppo_control", "sim=my_own"], CONTROL),
    "method slot=term": (["recipe=my_own"], TEXT),
    "method theme=losses slot=annotator": (["recipe=my_own"], TEXT),
    "method slot=weighting part=Mine": (["recipe=my_own"], TEXT),
}


def write_commands(folder: Path, small: Sequence[str]) -> Path:
    """Write the commands python and mmrl into a folder; mmrl's runs have a small size beside what is asked for."""
    folder.mkdir()
    size = [*QUIET, *(word for word in small if "hidden_size" not in word), "run_dir=run"]
    size = [word for word in size if not word.startswith("trainer.callbacks.warm_start.")]
    commands = {"python": "-P", "mmrl": "-P -m mmrl"}
    for name, options in commands.items():
        more = f" {shlex.join(size)}" if name == "mmrl" else ""
        (folder / name).write_text(f'#!/bin/sh\nexec {quick_python()} {options} "$@"{more}\n')
        (folder / name).chmod(0o755)
    return folder


def test_a_name_and_a_folder_that_no_file_can_have_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", "a" * 300]) == 2
    assert "300 letters, more than 60; choose a shorter name" in capsys.readouterr().err
    monkeypatch.chdir("/sys")  # no user, root included, can create a file there
    assert main(["new", "task", "mine"]) == 2
    assert "/sys cannot be written" in (message := capsys.readouterr().err) and message.count("\n") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_its_test_and_trains(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command, *options = kind.split()
    assert main(["new", command, "my_own", *options]) == 0
    *written, last = capsys.readouterr().out.split("\n")[:-1]
    assert all(Path(path).is_file() for path in written) and "tests/test_my_own.py" in written
    environment = {**os.environ, "PYTHONPATH": str(Path(mmrl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    words, small = KINDS[kind]
    assert f"mmrl fit {' '.join(words)}" in last
    environment["PATH"] = f"{write_commands(tmp_path / 'bin', small)}:{environment['PATH']}"
    line = last.removeprefix("try: ")
    tried = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True)
    assert tried.returncode == 0 and " passed" in tried.stdout and "run folder: run" in tried.stdout, tried
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
        (["task", "x_y", "slot=term"], "slot: unknown option; a task has none"),
        (["method", "x_y", "slot=nope"], "slot=nope: must be one of term, annotator, weighting"),
        (["method", "x_y", "theme=nope"], "theme=nope: no such theme; it is one of advantages, agents, "),
        (["method", "x_y", "setting=sum"], "setting=sum: no such setting. Did you mean 'sums'?"),
        (["method", "x_y", "part=a-b"], "part=a-b: must be the name of a class"),
        (["method", "x_y", "slot="], "slot: give a value, as in slot=term|annotator|weighting"),
        (["method", "x_y", "them=losses"], "them: unknown option; a method has theme=THEME slot=term|annotator|weigh"),
        (["method", "gspo", "theme=losses"], "there is a method 'gspo' already"),
        (["method", "grpo_graphs", "theme=losses"], "there is a recipe 'grpo_graphs' already"),
        (["recipe", "x_y"], "method=NAME is missing: a recipe is a method in a setting"),
        (["recipe", "x_y", "method=gspo"], "setting=NAME is missing"),
        (["recipe", "x_y", "method=gspoo", "setting=sums"], "method=gspoo: no such method. Did you mean 'gspo'?"),
        (["recipe", "x_y", "slot=term"], "a recipe has no part; `mmrl new method NAME slot=...` writes one"),
        (["recipe", "gspo", "method=gspo", "setting=sums"], "there is a recipe 'gspo' already"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_full_folder_of_a_checkout_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mmrl.commands.new.files.CONF", tmp_path / "conf")
    folder = tmp_path / "conf/recipe/losses"
    folder.mkdir(parents=True)
    for number in range(25):
        (folder / f"x{number}.yaml").write_text("# @package _global_\n")
    assert main(["new", "method", "my_own", "theme=losses"]) == 2
    assert "conf/recipe/losses has 25 files" in capsys.readouterr().err and not Path("conf/method").exists()
    (folder / "x0.yaml").unlink()
    assert main(["new", "method", "my_own", "theme=losses"]) == 0 and (folder / "my_own.yaml").exists()


def test_a_method_without_a_part_is_two_files_and_a_recipe_of_two_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "method", "my_own", "theme=losses", "setting=graphs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "conf/method/losses/my_own.yaml",
        "conf/recipe/my_own.yaml",
        "try: mmrl fit recipe=my_own trainer.max_epochs=2",
    ]
    assert main(["new", "recipe", "again", "method=my_own", "setting=gridworld"]) == 0
    text = "# @package _global_\ndefaults: [{override /method: my_own}, {override /setting: gridworld}]\n"
    assert Path("conf/recipe/again.yaml").read_text() == text
    assert compose(["recipe=my_own"]).choices.setting == "graphs"
    assert compose(["recipe=again"]).choices.task == "gridworld"


def test_the_numbers_that_are_to_be_written_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "method", "my_own"]) == 0
    words = ["method=my_own", "setting=paper", "policy=text", "policy.path=x"]
    with pytest.raises(ConfigError, match=r"optimizer.lr is missing: give it as optimizer.lr=\.\.\."):
        to_lightning(compose(words))
