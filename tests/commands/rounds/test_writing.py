"""Rounds in which a reward is written: what the writer reads, which programs are trained with, and resuming."""

import json
from itertools import pairwise

import pytest
import yaml

from mmrl.commands.rounds.checks import check_steps
from mmrl.commands.rounds.execution import Execution
from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.receipts import Receipt, read_receipt, write_receipt
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.writing import REPORT, WriteRequest, try_answer, write_stage
from mmrl.core.errors import ConfigError
from mmrl.tools.programs.traces import Trace

COMMON = [
    *("recipe=ppo_control", "task=written_reward", "sim=gym", "sim.id=Pendulum-v1", "task.state_names=[x,y,speed]"),
    "trainer.accelerator=cpu",
]
STAGES = {
    "write": {"kind": "write", "goal": "stand still", "episodes": 2},
    "fit": {
        "kind": "fit",
        "gate": "write",
        "weights": "base",
        "overrides": ["task.program=${folder.write}/reward.py", "trainer.max_epochs=1"],
    },
    "measure": {"kind": "evaluate", "gate": "write", "weights": "fit"},
}
UP = "def reward(before, action, after):\n    return {'up': after['x'], 'slow': -abs(after['speed'])}\n"
DOWN = "def reward(before, action, after):\n    return {'down': -after['x']}\n"
BROKEN = "def reward(before, action, after):\n    return after['z']\n"


def rounds_file(tmp_path, programs, **write):
    files = []
    for number, program in enumerate(programs):
        files.append(tmp_path / f"{number}.py")
        files[-1].write_text(program)
    stages = {**STAGES, "write": {**STAGES["write"], "writer": {"files": list(map(str, files))}, **write}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"rounds": 2, "common": COMMON, "stages": stages}, sort_keys=False))
    return read_rounds([str(path)])


@pytest.fixture
def execution(tmp_path, monkeypatch):
    """Build the execution of rounds whose write stages run in this process, and whose fits leave their receipts."""

    def build(programs, **write):
        file = rounds_file(tmp_path, programs, **write)
        rounds = Execution(file, list_steps(file), tmp_path / "run")
        monkeypatch.setattr(rounds, "_start", lambda step, arguments: write_stage(tmp_path / "run" / step.name))
        return rounds

    return build


def test_a_program_that_fails_is_answered_with_the_reason_and_the_next_one_is_taken(execution):
    rounds = execution([BROKEN, UP])
    receipt = rounds.run(rounds.steps[0])
    assert receipt.result == {"accepted": True} and receipt.note == "answer 2 accepted"
    folder = rounds.run_dir / "1" / "write"
    first, answer, refused = json.loads((folder / "conversation.json").read_text())
    assert "'speed': float" in first["content"] and "stand still" in first["content"]
    assert "return after['z']" in answer["content"]
    assert "reward.py: line 2: KeyError: 'z'" in refused["content"]
    assert (folder / "reward.py").read_text() == UP
    assert "+    return {'up': after['x'], 'slow': -abs(after['speed'])}" in (folder / "reward.diff").read_text()


def test_what_is_behind_a_closed_gate_is_skipped(execution):
    rounds = execution([BROKEN, BROKEN], attempts=1)
    write, fit, measure = rounds.steps[:3]
    assert rounds.run(write).result == {"accepted": False}
    assert rounds.run(fit).note == rounds.run(measure).note == "skipped: its program was refused"
    again = rounds.steps[3]
    assert again.name == "2/write" and not rounds.run(again).result["accepted"]
    told = json.loads((rounds.run_dir / "2" / "write" / "conversation.json").read_text())
    assert [message["role"] for message in told] == ["user", "assistant", "user", "assistant", "user"]
    assert "KeyError: 'z'" in told[2]["content"]  # of the round before


def test_the_next_round_reads_what_the_policy_reached_and_a_persons_words(execution):
    rounds = execution([UP, DOWN], comments=["It swings too fast."])
    write, fit, measure, again = rounds.steps[:4]
    rounds.run(write)
    write_receipt_of(rounds, fit, Receipt(note="skipped: no rows"))  # so that no policy is recorded
    write_receipt_of(rounds, measure, Receipt(result={"metric": "greedy/returns/return", "mean": -123.4}))
    rounds.run(again)
    told = json.loads((rounds.run_dir / "2" / "write" / "conversation.json").read_text())
    assert told[1]["content"] == f"```python\n{UP}```"
    words = told[2]["content"]
    assert "Held-out greedy/returns/return: -123.400" in words and "It swings too fast." in words
    assert "up: " in words and "slow: " in words
    assert "-    return {'up'" in (rounds.run_dir / "2" / "write" / "reward.diff").read_text()


def write_receipt_of(rounds, step, receipt):
    (rounds.run_dir / step.name).mkdir(parents=True, exist_ok=True)
    write_receipt(rounds.run_dir / step.name, receipt)


def test_an_answer_is_asked_for_once(execution):
    """A stage that was killed after its first answer goes on with it."""
    rounds = execution([BROKEN, UP])
    folder = rounds.run_dir / "1" / "write"
    (folder / "answers").mkdir(parents=True)
    (folder / "answers" / "1.md").write_text(f"```python\n{DOWN}```")
    assert rounds.run(rounds.steps[0]).note == "answer 1 accepted"
    assert (folder / "reward.py").read_text() == DOWN
    assert read_receipt(folder) is not None and json.loads((folder / REPORT).read_text())["accepted"]


def trace(values, score):
    states = [{"x": float(value), "speed": 0.0} for value in values]
    return Trace([(one, 0.0, other) for one, other in pairwise(states)], score)


def test_a_program_that_pays_failures_more_is_not_trained_with():
    """One episode rises and succeeds, two fall and fail; the second of them falls less."""
    traces = [trace([0, 1, 2], 1.0), trace([0, -1, -2], 0.0), trace([0, -1, -1], 0.5)]
    assert try_answer(f"```python\n{UP}```", traces, 0.9, 1.0) == {"program": UP, "problem": None, "order": 1.0}
    tried = try_answer(f"```python\n{DOWN}```", traces, 0.9, 1.0)
    assert tried["order"] == 0.0
    assert "of 0% of the pairs" in tried["problem"] and "parts that do not: down" in tried["problem"]
    mixed = try_answer(f"```python\n{DOWN}```", traces, 0.5, 0.5)  # the third is a success, and below the second
    assert mixed["order"] == 0.0
    assert try_answer(f"```python\n{DOWN}```", traces, 0.0, 1.0)["problem"] is None
    assert "no block of Python" in try_answer(DOWN, traces, 0.0, 1.0)["problem"]


def test_a_program_is_tried_on_every_recorded_decision():
    late = "def reward(before, action, after):\n    return 1 / (after['x'] - 9)\n"
    tried = try_answer(f"```python\n{late}```", [trace(range(8), 0.0), trace(range(12), 0.0)], 0.0, 1.0)
    assert "line 2: ZeroDivisionError" in tried["problem"]


def test_without_a_success_there_is_nothing_to_compare():
    tried = try_answer(f"```python\n{DOWN}```", [trace([0, 1, 2], 0.1), trace([0, -1, -2], 0.0)], 0.9, 1.0)
    assert tried["problem"] is None and tried["order"] is None


@pytest.mark.parametrize(
    ("write", "refused"),
    [
        ({"goal": " "}, "stages.write.goal must say"),
        ({"attempts": 0}, "stages.write.attempts must be at least 1"),
        ({"order": 2.0}, "stages.write.order must be in"),
        ({"writer": {}}, "stages.write: writer: give files"),
        ({"writer": {"files": ["/nowhere.py"]}}, "/nowhere.py: no such file"),
        ({"overrides": ["task=sim"]}, "stages.write: .*take task=written_reward"),
    ],
)
def test_a_stage_that_cannot_run_is_refused_before_anything_does(write, refused, tmp_path):
    with pytest.raises(ConfigError, match=refused):
        file = rounds_file(tmp_path, [UP], **write)
        check_steps(file, list_steps(file), tmp_path / "run")


def test_a_gate_is_a_write_stage(tmp_path):
    file = rounds_file(tmp_path, [UP])
    file.values["stages"]["measure"]["gate"] = "fit"
    with pytest.raises(ConfigError, match=r"stages\.measure\.gate: 'fit' is a fit stage; a gate is"):
        list_steps(file)


def test_the_request_is_plain(execution):
    rounds = execution([UP])
    rounds.run(rounds.steps[0])
    request = json.loads((rounds.run_dir / "1" / "write" / "writing.json").read_text())
    assert set(request) == set(WriteRequest.__dataclass_fields__) and request["before"] == []
