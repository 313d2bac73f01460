import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.__main__ import main
from mmrl.commands.completion import SCRIPTS, complete
from mmrl.config.compose import groups

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mmrl ev", ["evaluate"]),
        ("mmrl help l", ["list", "look"]),
        ("mmrl fit recipe=grpo_di", ["recipe=grpo_digits_vlm"]),
        ("mmrl fit recipe=grpo polic", ["policy.", "policy="]),
        ("mmrl fit recipe=grpo data.num_", ["data.num_minibatches=", "data.num_prompts="]),
        ("mmrl fit recipe=sac data.gra", ["data.gradient_steps="]),
        ("mmrl fit recipe=grpo sampling.t", ["sampling.temperature="]),
        ("mmrl fit recipe=nothing data.num_", []),
        ("mmrl evaluate runs/a compare=s", ["compare=start"]),
        ("mmrl data re", ["record"]),
        ("mmrl data record sim=pu", ["sim=push", "sim=pusht"]),
        ("mmrl list pol", ["policies"]),
        ("mmrl list recipes sac", ["sac", "sac_discs", "sac_picture_reach", "sac_pixels"]),
        ("mmrl list methods gs", ["gspo"]),
        ("mmrl list settings pretrained_t", ["pretrained_text", "pretrained_text_lora"]),
        ("mmrl list start sum", ["sums"]),
        ("mmrl list policies ", []),
        ("mmrl fit method=gs", ["method=gspo"]),
        ("mmrl fit start=sum", ["start=sums"]),
        ("mmrl fit method=gspo setting=sums data.num_", ["data.num_minibatches=", "data.num_prompts="]),
        ("mmrl doctor setting=smolv", ["setting=smolvlm"]),
        ("mmrl completion ", ["bash", "zsh"]),
        ("mmrl new re", ["recipe", "reward"]),
        ("mmrl new recipe re", []),
        ("mmrl nothing ", []),
    ],
)
def test_candidates_complete_the_last_word(line, expected):
    assert complete(line) == expected


def test_every_option_of_a_group_is_a_candidate():
    for group, options in groups().items():
        assert complete(f"mmrl fit {group}=") == [f"{group}={option}" for option in options]


def test_run_folders_are_found_below_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/demo", "runs/grpo/1", "runs/empty"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("runs/demo", "runs/grpo/1"):
        (tmp_path / name / "config.yaml").write_text("")
    assert complete("mmrl evaluate runs/") == ["runs/demo", "runs/grpo/1"]
    assert complete("mmrl data record run=runs/d") == ["run=runs/demo"]


def test_bash_completes_what_follows_the_equals_sign(tmp_path):
    """In bash itself: COMP_WORDBREAKS separates at `=`, so a reply replaces the value alone."""
    program = tmp_path / "mmrl"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mmrl "$@"\n')
    program.chmod(0o755)
    line = "mmrl fit recipe=grpo_di"
    text = f'{SCRIPTS["bash"]}\nCOMP_LINE="{line}"; COMP_POINT={len(line)}; _mmrl 2>/dev/null; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert done.stdout.strip() == "grpo_digits_vlm"


def test_a_shell_without_a_script_is_refused(capsys):
    assert main(["completion", "fish"]) == 2
    assert "bash or zsh" in capsys.readouterr().err
    assert main(["completion", "zsh"]) == 0
    assert "compdef _mmrl mmrl" in capsys.readouterr().out
