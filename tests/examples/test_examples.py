"""Every program of examples/ runs, each as a process of its own, with arguments that make it short."""

import os
import subprocess
from pathlib import Path

import pytest

import mmrl
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET, ROOT

EXAMPLES = {file.stem: file for file in sorted((ROOT / "examples").glob("*.py"))}
SHORT = (*QUIET[:2], *QUIET[3:], "trainer.max_epochs=1", "data.num_prompts=2", "trainer.logger.tensorboard=null")
NARROW = ("policy.config.hidden_size=32", "policy.config.intermediate_size=64", "policy.config.num_hidden_layers=1")
FIT = {
    "grpo_own_function": (*SHORT, *NARROW, "data.evaluation.count=2"),
    "vlm_own_pictures": (*SHORT, "data.group_size=2", "data.evaluation.count=2", "trainer.check_val_every_n_epoch=1"),
    "ppo_own_gymnasium": (*SHORT, "rollout.horizon=16", "data.evaluation.count=2"),
    "dpo_pairs": (*SHORT, *NARROW),
    "own_loss": (*SHORT, *NARROW, "data.evaluation.count=2"),
    "own_task": (*SHORT, *NARROW, "data.evaluation.count=2"),
}
LOADED = ("vla_in_simulator", "evaluate_run")
"""Programs that are given the folder of a run."""


def run(name: str, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [quick_python(), str(EXAMPLES[name]), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_every_example_is_run():
    assert {*FIT, *LOADED} == set(EXAMPLES) and len(EXAMPLES) <= 8
    assert all(len(file.read_text().splitlines()) <= 60 for file in EXAMPLES.values())


@pytest.mark.parametrize("name", FIT)
def test_a_program_trains_and_says_what_came_of_it(name, tmp_path):
    printed = run(name, tmp_path, *FIT[name], "run_dir=run")
    lines = printed.splitlines()
    assert "run folder: run" in lines and lines[-1] != "run folder: run"
    assert (mmrl.Run(tmp_path / "run").policy / "config.json").is_file()


def test_programs_that_are_given_a_run(tmp_path):
    keys = {"data": {"num_prompts": 1, "group_size": 2, "evaluation": {"count": 1}}, "trainer": {"max_epochs": 1}}
    folder = mmrl.fit("recipe=demo_vla", *QUIET, run_dir=tmp_path / "run", **keys).folder
    acted = run("vla_in_simulator", tmp_path, str(folder), "1")
    assert "seed 1: 'reach the" in acted and "of 1 episodes succeeded" in acted
    assert "last mean success: " in run("evaluate_run", tmp_path, str(folder), "1")
