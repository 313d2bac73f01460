"""What is typed: both roads into one configuration, and one clear line for what cannot be used."""

import subprocess
from pathlib import Path

import pytest

from mmrl.__main__ import main
from mmrl.config.compose import compose
from mmrl.config.errors.parser import format_parser_error
from tests.quick_python import quick_python

WORDS = ["fit", "recipe=grpo", "task=arithmetic", "policy=tiny_text", "run_dir=somewhere"]


def test_the_printed_configuration_parses_again_to_the_same_text(tmp_path, capsys):
    assert main([*WORDS, "trainer.max_epochs=2", "--print_config"]) == 0
    first = capsys.readouterr().out
    assert "max_epochs: 2" in first
    file = tmp_path / "config.yaml"
    file.write_text(first)
    assert main(["fit", "--config", str(file), "--print_config"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("objective.nonsense=1", ["model.objective", "unknown key 'nonsense'", "terms"]),
        ("data.num_prompts=many", ["data.num_prompts", "must be int", "many"]),
        ("data.annotators.gae.gama=1", ["data.annotators", "GAE", "Did you mean 'gamma'?"]),
        ("trainer.max_epoch=1", ["trainer", "Did you mean 'max_epochs'?"]),
        ("recipe=grop", ["recipe=grop", "Did you mean 'grpo'?"]),
        ("polcy.path=x", ["polcy", "Did you mean 'policy'?"]),
        ("policy=text", ["model.policy.path is missing", "policy.path=..."]),
        ("nonsense", ["'nonsense' is not of the form key=value"]),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(word, expected, capsys):
    group = word.partition("=")[0]  # can be given once
    assert main([*(w for w in WORDS if w.partition("=")[0] != group), word, "--print_config"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert [part for part in expected if part not in message] == []
    assert len(message) < 400


def test_the_deepest_complaint_is_the_cause():
    text = """Parser key "data":
  Does not validate against any of the Union subtypes
  Errors:
    - Problem with given class_path 'a.B':
        Parser key "task":
          Problem with given class_path 'c.D':
            Parser key "digits":
              Expected a <class 'int'>. Got value: x
    - Expected a <class 'NoneType'>
  Given value: {'Option': 'of no matter'}"""
    assert format_parser_error(text) == "data.task.digits (c.D): must be int, got x"


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "--help"],
        ["data", "record", "-h"],
        ["list", "--help"],
        ["fit", "recipe=grpo", "-h"],
        ["data", "help"],
    ],
)
def test_every_command_prints_its_usage(arguments, capsys):
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert output.out.startswith(f"mmrl {arguments[0]}: ") and not output.err


def test_unknown_commands_and_help(capsys):
    assert main(["fti"]) == 2
    known = (
        "commands are fit, rounds, plan, evaluate, compare, weights, show, chat, serve, robot, push, data, new, list"
    )
    assert known in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "mmrl evaluate" in capsys.readouterr().out


def test_the_module_runs_as_a_program():
    root = Path(__file__).parents[2]
    done = subprocess.run([quick_python(), "-m", "mmrl", "list", "recipes"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "grpo" in done.stdout


@pytest.mark.parametrize("slot, key", [("task", "data.task"), ("policy", "model.policy"), ("task", "+data.task")])
def test_start_stages_get_what_is_said_of_the_task_and_the_policy_in_either_spelling(slot, key):
    """Else a start would learn from problems that this run holds out."""
    for spelled in (slot, key):
        cfg = compose(["recipe=grpo", f"{spelled}.seed=3", "data.num_prompts=8"])
        assert f"{spelled}.seed=3" in cfg.trainer.callbacks.warm_start.common
        assert "data.num_prompts=8" not in cfg.trainer.callbacks.warm_start.common
