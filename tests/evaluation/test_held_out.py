"""Held-out evaluations in the course of a run: how many prompts each of them has."""

import csv
from types import SimpleNamespace

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt, Sampling
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic.task import Arithmetic
from tasks.strings import Strings
from tests.tiny_recipes import QUIET, TEXT

QUIET_BUT_LOGGED = [word for word in QUIET if word != "trainer.logger=false"]


def run(folder, *words):
    """Number of prompts and success rate of every evaluation of three iterations."""
    cfg = compose(
        [*TEXT, *QUIET_BUT_LOGGED, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=1", f"run_dir={folder}"]
        + ["data.evaluation.count=12", *words]
    )
    CLI(to_lightning(cfg)).fit()
    with (folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("val/greedy/exact/n")]
    return [(int(float(row["val/greedy/exact/n"])), row["val/greedy/exact/mean"]) for row in rows]


def test_evaluations_between_the_first_and_the_last_have_fewer_prompts(tmp_path):
    full, fewer = run(tmp_path / "full"), run(tmp_path / "fewer", "data.evaluation.interim_count=4")
    assert [n for n, _ in full] == [12] * 4
    assert [n for n, _ in fewer] == [12, 4, 4, 12]
    assert fewer[0] == full[0] and fewer[-1] == full[-1]  # the run itself is the same


def held_out(**changes):
    return HeldOut(SingleTurn(), {"greedy": Sampling(decode="argmax")}, {"exact": SuccessRate("exact")}, **changes)


def test_held_out_problems_can_be_harder_than_those_of_training():
    task = Strings(levels=(1, 2))
    harder = held_out(task={"levels": [4], "held_out": 9}).select_problems(task)
    assert (harder.levels, harder.split, len(harder)) == ((4,), "held_out", 9)
    assert held_out().select_problems(task) == task.on("held_out")


def test_an_argument_that_the_task_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"data.evaluation.task: task 'strings' has no \['depth'\]"):
        held_out(task={"depth": 3}).select_problems(Strings())


def test_an_argument_of_another_type_is_refused():
    with pytest.raises(
        ConfigError, match=r"data.evaluation.task=\{'digits': 99999\}: .*give values of the task's types"
    ):
        held_out(task={"digits": 99999}).select_problems(Arithmetic())


@pytest.mark.parametrize("count", [0, 9])
def test_an_interim_count_outside_the_prompts_is_refused(count):
    with pytest.raises(ValueError, match=rf"interim_count must be 1 to count=8, got {count}"):
        held_out(count=8, interim_count=count)


def test_an_evaluator_that_compares_with_the_start_needs_all_prompts():
    class Compared(SuccessRate):
        compares = True

    with pytest.raises(ValueError, match="interim_count: an evaluator compares with the start"):
        HeldOut(SingleTurn(), {}, {"exact": Compared("exact")}, count=8, interim_count=4)


def test_completions_that_are_mostly_cut_off_are_said_once(tmp_path, caplog):
    run(tmp_path / "run", "data.evaluation.sampling.greedy.max_tokens=2")
    said = [record.message for record in caplog.records if record.name == "mmrl.evaluation.held_out"]
    assert said == [
        "held-out greedy: 12 of 12 completions were cut off at sampling.max_tokens=2; raise it if answers need more"
    ]


@pytest.mark.parametrize(("ends", "says"), [("ld", 0), ("lld", 1), ("dd", 0), ("", 0), ("le", 0), ("lle", 1)])
def test_few_completions_that_are_cut_off_are_not_said(caplog, ends, says):
    names = {"l": "length", "d": "done", "e": "error"}
    episodes = [Episode(Prompt("p"), i, 0, ended=names[end]) for i, end in enumerate(ends)]
    measured = held_out()
    for _ in range(2):
        measured._say_cut("greedy", episodes, 4, SimpleNamespace(rank=0))
    assert len(caplog.records) == says


def test_a_warm_start_that_measures_training_problems_does_not_call_them_held_out(caplog):
    episodes = [Episode(Prompt("p"), 0, 0, ended="length")]
    measured = HeldOut(SingleTurn(), {}, {}, count=1, split="train")
    measured._say_cut("greedy", episodes, 4, SimpleNamespace(rank=0))
    assert caplog.messages[0].startswith("training problems, greedy: 1 of 1 completions were cut off")
