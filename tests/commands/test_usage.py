import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from mmrl.__main__ import main
from mmrl.commands import COMMANDS
from mmrl.commands.evaluation.arguments import OPTIONS
from mmrl.commands.help.jobs import JOBS, format_job, format_overview
from mmrl.commands.help.usage import USAGES
from mmrl.commands.options import RECORD_OPTIONS
from mmrl.config.compose import SHORT, compose

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["help", "train"],
        ["--version"],
        ["list"],
        ["list", "recipes"],
        ["list", "methods"],
        ["list", "schedulers"],
        ["fit", "--help"],
        ["completion", "line", "mmrl fit recipe=grpo_di"],
    ],
    ids=" ".join,
)
def test_commands_that_explain_import_no_large_package(arguments):
    code = (
        "import sys\nfrom mmrl.__main__ import main\n"
        f"assert main({arguments}) == 0\n"
        "print(sorted({'torch', 'lightning', 'transformers', 'gymnasium', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_that_of_the_imported_packages(capsys):
    assert main(["--version"]) == 0
    lines = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == torch.__version__.partition("+")[0] or lines["torch"] == torch.__version__
    assert {"mmrl", "python", "lightning"} <= set(lines)


def test_every_command_has_a_usage_and_stands_in_the_overview():
    assert set(USAGES) == set(COMMANDS)
    for name, text in USAGES.items():
        assert text.startswith(f"mmrl {name}: ") and f"  mmrl {name} " in format_overview()
        assert max(map(len, text.splitlines())) <= 120


def test_every_command_is_in_one_job():
    names = [command.split()[0] for job in JOBS.values() for command, _ in job.commands]
    assert sorted(names) == sorted(COMMANDS) and list(JOBS) == ["train", "evaluate", "look", "serve", "plan"]


@pytest.mark.parametrize("job", [None, *JOBS])
def test_the_overview_and_each_job_are_one_screen(job, capsys):
    assert main(["--help", *([job] if job else [])]) == 0
    shown = capsys.readouterr().out
    assert shown == (format_job(job) if job else format_overview())
    lines = shown.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80  # with the prompt below them
    assert "`mmrl COMMAND --help`" in shown
    for command, summary in JOBS[job].commands if job else ():
        assert f"  mmrl {command} " in shown and summary in shown


def test_help_of_a_command_is_its_usage(capsys):
    assert main(["help", "plan"]) == 0 and capsys.readouterr().out == format_job("plan")  # a job and a command
    assert main(["help", "fit"]) == 0 and capsys.readouterr().out == USAGES["fit"]
    assert main(["help", "nothing"]) == 2 and "jobs are train, evaluate" in capsys.readouterr().err


EXAMPLES = [
    line.split("   ")[0].strip()
    for text in (*USAGES.values(), *(job.steps for job in JOBS.values()))
    for line in text.splitlines()
    if re.match(r"  mmrl (fit|plan|doctor) [a-z]\w*=", line) and "NAME" not in line
]


@pytest.mark.parametrize("line", sorted(set(EXAMPLES)))
def test_examples_of_runs_compose(line):
    words = [word for word in shlex.split(line)[2:] if "=" in word]
    assert compose(words).choices.method


def test_the_usage_of_fit_states_the_defaults_of_grpo():
    cfg = compose(["recipe=grpo"])
    groups, keys = USAGES["fit"].split("Common keys")[0], USAGES["fit"].split("Common keys")[1].split("For this")[0]
    indented = re.findall(r"^  .*", groups.split("What is run")[1], flags=re.MULTILINE)
    stated = dict(pair.split("=") for line in indented for pair in re.findall(r"\w+=\w+", line))
    assert {"recipe", "method", "setting", "start"} <= set(stated)
    assert {group: option for group, option in stated.items() if option != "null"} == dict(cfg.choices)
    lines = re.findall(r"^  ([\w.]+)=(\S+)", keys, flags=re.MULTILINE)
    assert len(lines) > 15
    for key, value in lines:
        slot, _, rest = key.partition(".")
        full = f"{SHORT.get(slot, slot)}.{rest}".rstrip(".")
        expected = OmegaConf.select(cfg, full)
        assert (float(value) if isinstance(expected, float) else yaml.safe_load(value)) == expected or (
            key == "run_dir" and expected.startswith("runs/grpo/")
        )


def test_usages_name_every_option():
    assert [name for name in OPTIONS if f"\n  {name}=" not in USAGES["evaluate"]] == []
    assert [name for name in RECORD_OPTIONS if f"{name}=" not in USAGES["data"] and name != "policy"] == []


def test_all_options_of_lightning_are_shown_when_asked_for(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "--help", "all"])
    assert stopped.value.code == 0
    assert "--trainer.accumulate_grad_batches" in capsys.readouterr().out
