"""Runs with the reward functions of a file: several processes, resuming, and refusals of the command line."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

import mmrl
from mmrl.__main__ import main
from mmrl.runs.checkpoint_file import read_weights
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET, TEXT, override

WORDS = (*(word for word in TEXT if "reward" not in word), *(word for word in QUIET if "logger" not in word),
         "trainer.logger.tensorboard=null", "reward=[rewards.py:score,rewards.py:rank]", "reward.weights={rank: 0.5}",
         "trainer.check_val_every_n_epoch=1", "scheduler=constant")  # fmt: skip
FILE = """
def score(completion, answer):
    return {"distinct": len(set(completion)) / 8, "short": len(completion) < 8}


async def rank(completions):
    return [sorted(completions).index(text) for text in completions]


def fails(completion):
    return 1 / 0


def hangs(completion):
    import time
    time.sleep(60)


def short(completions):
    return [1.0]


def needs(completion, level):
    return level


def nan(completion):
    return float("nan")
"""

SHORT = "len(completion) < 8}"
WITH_TENSOR = FILE.replace(SHORT, f'__import__("torch").tensor({SHORT[:-1]})}}')
"""The same numbers, one of them a tensor: each process that calls the function imports torch for it."""


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(FILE)
    return tmp_path / "rewards.py"


def words(*more: str) -> list[str]:
    return override(WORDS, more)


def weights(folder: str) -> dict[str, torch.Tensor]:
    return read_weights(str(mmrl.Run(Path(folder)).checkpoint), False)["state_dict"]


def test_two_processes_give_the_same_rewards(file):
    file.write_text(WITH_TENSOR)
    assert main(["fit", *words("run_dir=one", "trainer.max_epochs=1")]) == 0
    file.write_text(FILE)
    both = [quick_python(), "-m", "mmrl", "fit", *words("run_dir=two", "trainer.max_epochs=1", "trainer.devices=2")]
    environment = {**os.environ, "PYTHONPATH": str(Path(mmrl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*both, "trainer.strategy=ddp"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    one, two = (mmrl.Run(Path(name)).last_metrics for name in ("one", "two"))
    names = [name for name in one if "/score" in name or "reward" in name if name != "time/score"]
    assert {"rollout/reward", "rollout/score/rank", "val/greedy/reward/mean", "val/greedy/scores/short"} <= set(names)
    assert {name: two[name] for name in names} == pytest.approx({name: one[name] for name in names}, abs=1e-6)


def test_a_resumed_run_is_the_same_run():
    assert main(["fit", *words("run_dir=whole", "trainer.max_epochs=2")]) == 0
    assert main(["fit", *words("run_dir=part", "trainer.max_epochs=1")]) == 0
    resumed = words("run_dir=part", "trainer.max_epochs=2", "ckpt_path=part/checkpoints/last.ckpt")
    assert main(["fit", *resumed]) == 0
    whole, part = weights("whole"), weights("part")
    assert all(torch.equal(value, part[name]) for name, value in whole.items())
    assert mmrl.evaluate("part", count=4)["greedy"]["reward"]["n"] == 4


def test_a_parameter_without_a_column_is_refused_before_the_first_rollout(capsys, tmp_path):
    rows = [{"question": f"{i}?", "answer": i, "level": i % 3} for i in range(40)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "named.py").write_text(
        "def fine(completions, level, exact, **rest):\n    return [0.0] * len(completions)\n\n\n"
        "def wrong(completion, levle, exact):\n    raise AssertionError('it was called')\n"
    )
    task = [word for word in words("task=dataset", "task.path=q.jsonl") if not word.startswith("data.task._target_")]
    task = override(task, ["trainer.max_epochs=1", "run_dir=run", "reward.weights=null"])
    assert main(["fit", *override(task, ["reward=named.py:fine"])]) == 0
    capsys.readouterr()
    assert main(["fit", *override(task, ["reward=named.py:wrong", "run_dir=other"])]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "wrong has a parameter 'levle', and 'dataset/train/0' has no such column; there are" in said
    assert "level" in said and "exact" in said
    assert not list(Path("other").glob("**/*.ckpt"))


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["reward=rewards.py:scroe"], 2, "rewards.py has no 'scroe'; did you mean 'score'?"),
        (["reward=rewards.py:fails"], 2, "reward function rewards.py: fails raised ZeroDivisionError: division by zero "
                                         "(rewards.py, line 11: return 1 / 0); it was given the completion"),
        (["reward=rewards.py:hangs", "reward.timeout_s=1"], 2, "rewards.py: hangs took longer than 1 s and was killed"),
        (["reward=rewards.py:short"], 2, "rewards.py: short returned a list of 1 values for 2 completions"),
        (["reward=rewards.py:needs"], 2, "rewards.py:needs: needs has a parameter 'level', and '"),
        (["reward=rewards.py:nan"], 2, "rewards.py: nan returned nan, which is not a finite number"),
        (["reward.weights={nope: 1}"], 2, "weights names 'nope', but"),
        (["reward.nope=1"], 2, "nope"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)  # fmt: skip
def test_what_gives_no_reward_ends_the_run_in_one_line(arguments, status, message, capsys):
    assert main(["fit", *words("run_dir=run", "trainer.max_epochs=1", "data.evaluation=null", *arguments)]) == status
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in said
    assert not Path("run/policy").exists()
