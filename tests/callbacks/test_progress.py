"""Without a terminal a run prints one line per iteration, with the numbers of metrics.csv."""

import csv
import re

import pytest

from mmrl.__main__ import main
from mmrl.callbacks.progress import STAGE, format_iteration, select_loss_metrics
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.test_recipes import words_of
from tests.tiny_recipes import fit, words

PLAIN = ("trainer.callbacks.progress={_target_: mmrl.callbacks.progress.Progress}", "trainer.enable_progress_bar=true")


def test_a_run_prints_one_line_per_iteration(tmp_path, capsys):
    logger = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    fit(tmp_path, *PLAIN, logger, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("iteration ")]
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["rollout/reward"]]
    assert len(lines) == len(rows) == 3
    for number, (line, row) in enumerate(zip(lines, rows)):
        assert line.startswith(f"iteration {number}/2: reward {float(row['rollout/reward']):.4g}, length ")
        assert re.search(rf", kl {float(row['train/policy/kl']):.3g}, clip_fraction \S+, \S+ s(,|$)", line)
        assert ("held-out greedy/exact" in line) == (number >= 1)  # every second one, and the last


@pytest.mark.parametrize("recipe, name", [("grpo", "greedy/exact/mean"), ("sac", "greedy/returns/return")])
def test_the_last_iteration_is_measured_where_the_interval_does_not_divide(recipe, name, tmp_path):
    dropped = ("trainer.max", "trainer.check", "trainer.logger")
    words = [word for word in words_of(recipe, tmp_path) if not word.startswith(dropped)]
    logger = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    assert main(["fit", *words, logger, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2"]) == 0
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["iterations"]) for row in rows if row.get(f"val/{name}")] == [0, 2, 3]


@pytest.mark.parametrize("split, name", [("held_out", "held-out"), ("train", "training problems,")])
def test_the_start_has_the_numbers_of_its_split_and_a_stage_its_name(split, name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(STAGE, "sft")
    fit(tmp_path, *PLAIN, "trainer.max_epochs=1", f"data.evaluation.split={split}")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"sft: start: {name} greedy/exact \S+ \[\S+, \S+\]", first)
    assert re.match(rf"sft: iteration 0/0: reward .* s, {name} greedy/exact ", second)


@pytest.mark.parametrize(
    "metrics, expected",
    [
        ({"rollout/reward": 0.5, "rollout/errors": 0.0, "rollout/truncated_fraction": 0.0}, "reward 0.5, 2 s"),
        ({"rollout/reward": 0.5, "rollout/errors": 3.0}, "reward 0.5, errors 3, 2 s"),
        ({"train/actor/kl": 0.01, "train/critic/kl": 0.02}, "actor/kl 0.01, critic/kl 0.02, 2 s"),
        ({"train/policy/kl": 1 / 3, "train/policy": 5.0}, "kl 0.333, 2 s"),
        ({"train/policy/kl": 0.1, "train/policy": 5.0, "train/kl": 0.2}, "policy/kl 0.1, kl 0.2, 2 s"),
        ({"train/preference": 0.5, "train/preference/margin": 1.0, "train/learning_rate": 1.0}, "loss 0.5, 2 s"),
        ({"train/preference": 0.5, "train/preference/accuracy": 0.75}, "loss 0.5, accuracy 0.75, 2 s"),
        ({"train/imitation": 0.5, "train/latent_kl": 3.0}, "imitation 0.5, latent_kl 3, 2 s"),
        ({"train/critic/td": 2.0, "train/critic/td/q": 1.0, "train/actor/q": -1.0}, "critic/td 2, actor/q -1, 2 s"),
    ],
)
def test_the_parts_of_a_line(metrics, expected):
    assert format_iteration(metrics, 2.0, {}) == expected


SAC_TERMS = ("critic/td", "actor/q", "actor/entropy", "actor/temperature")


@pytest.mark.parametrize(
    "recipe, numbers, more",
    [
        ("bradley_terry", ("loss", "accuracy"), ()),
        ("dpo", ("loss", "accuracy"), ()),
        ("kto", ("loss", "accuracy"), ()),
        ("orpo", ("loss", "accuracy"), ()),
        ("sft", ("loss",), ()),
        ("bc", ("loss",), ()),
        ("progress", ("loss",), ()),
        ("ppo_control", ("return", "kl", "clip_fraction"), ("data.rollout.horizon=64",)),
        ("sac", ("return", *SAC_TERMS), ("data.rollout.horizon=210",)),
        ("reinforce", ("reward", "length", "truncated", "loss"), ()),
    ],
)
def test_a_line_has_the_numbers_of_its_method(recipe, numbers, more, tmp_path, capsys):
    dropped = ("trainer.callbacks.progress", "trainer.enable", *(word.partition("=")[0] for word in more))
    words = [word for word in words_of(recipe, tmp_path) if not word.startswith(dropped)]
    cli = CLI(to_lightning(compose([*words, *more, "data.evaluation=null"])))
    cli.fit()
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("iteration "))
    parts = line.partition(": ")[2].split(", ")
    assert tuple(part.rpartition(" ")[0] for part in parts[:-1]) == numbers and parts[-1].endswith(" s")
    if "return" in numbers:  # of whole episodes, not of segments
        assert float(parts[0].split()[1]) == pytest.approx(cli.datamodule.metrics["return_100"], rel=1e-3)


def test_a_run_that_learned_nothing_says_so(tmp_path, capsys):
    drop = "data.transforms.none={_target_: tests.tiny_recipes.DropFrom, iteration: 0}"
    assert main(["fit", *words(tmp_path, drop, "trainer.max_epochs=1", "data.evaluation=null")]) == 0
    assert "nothing was learned: no iteration left an episode to learn from" in capsys.readouterr().out


def test_the_numbers_of_the_loss_are_those_of_the_learning_step_alone():
    assert select_loss_metrics({"rollout/kl": 1.0, "time/kl": 2.0, "rollout/accuracy": 3.0}) == {}


def test_rates_have_their_interval_and_counts_are_left_out():
    rate = {
        f"val/greedy/exact/{name}": value for name, value in zip(("mean", "lower", "upper", "n"), (0.5, 0.4, 0.6, 99))
    }
    line = format_iteration({}, 1.0, {**rate, "val/greedy/length/mean": 7.0, "val/loss": 0.25})
    assert line == "1 s, held-out greedy/exact 0.5 [0.4, 0.6], greedy/length 7, loss 0.25"


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_end_is_measured_where_the_interval_is_longer_than_the_run(epochs, tmp_path):
    logger = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    fit(tmp_path, logger, f"trainer.max_epochs={epochs}", "trainer.check_val_every_n_epoch=7")
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["iterations"]) for row in rows if row.get("val/greedy/exact/mean")] == [0, epochs]
