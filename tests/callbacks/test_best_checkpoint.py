"""The best weights are replaced by measurably better ones alone, survive a resume, and end a run without progress."""

import csv
import json
import re

import pytest
import torch

from mmrl.__main__ import main
from mmrl.callbacks.best_checkpoint import BestCheckpoint
from mmrl.runs.checkpoint_file import read_checkpoint
from mmrl.runs.run_folder import checkpoints_of
from tests.tiny_recipes import fit, words

BEST = (
    "trainer.callbacks.best._target_=mmrl.callbacks.best_checkpoint.BestCheckpoint",
    "trainer.callbacks.best.monitor=val/sample/digits/digits",
    "data.evaluation.evaluators.digits._target_=mmrl.evaluation.metrics.means.MeanScores",
    "data.evaluation.sampling={sample: {temperature: 1.0, max_tokens: 5}}",
    "data.evaluation.count=40",
    "data.num_prompts=20",
    "trainer.check_val_every_n_epoch=1",
)
LEARNS = (*BEST, "data.num_minibatches=1", "optimizer.lr=2e-2", "model.scheduler.total_iters=20")
STANDS = (*BEST, "data.num_minibatches=1", "optimizer.lr=1e-9")


def column(folder, name: str) -> dict[int, float]:
    """A metric by the number of finished iterations."""
    with (folder / "metrics.csv").open() as file:
        return {int(float(row["iterations"])): float(row[name]) for row in csv.DictReader(file) if row[name]}


def state(folder) -> dict:
    callbacks = read_checkpoint(folder / "checkpoints" / "last.ckpt")["callbacks"]
    (values,) = [dict(values) for name, values in callbacks.items() if name.startswith("BestCheckpoint")]
    assert values.pop("file") == str(folder / "checkpoints" / "best.ckpt")
    return values


def weights(folder, name: str) -> dict[str, torch.Tensor]:
    return read_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["state_dict"]


def same_weights(one: dict, other: dict) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_learns_replaces_its_best_weights_and_evaluate_measures_them(tmp_path, capsys):
    log = f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}"
    fit(tmp_path, *LEARNS, log, "trainer.max_epochs=6")
    best = state(tmp_path)
    winner = best["iteration"]
    digits, p_values = column(tmp_path, "val/sample/digits/digits"), column(tmp_path, "best/p_value")
    assert winner >= 1 and p_values[winner] <= 0.05 / 6 and digits[winner] > digits[0]
    assert column(tmp_path, "best/iteration")[6] == winner
    assert all(p_values[later] > 0.05 / 6 for later in range(winner + 1, 7))
    assert not same_weights(weights(tmp_path, "best"), weights(tmp_path, "start"))
    assert tmp_path / "checkpoints" / "best.ckpt" not in checkpoints_of(tmp_path)  # no run resumes from it
    assert f"best weights: iteration {best['iteration']}" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path), "checkpoint=best"]) == 0
    measured = json.loads((tmp_path / "evaluation.json").read_text())["metrics"]["best"]["sample"]["digits"]["digits"]
    assert measured == pytest.approx(digits[winner], rel=1e-6)


def test_weights_that_are_no_better_replace_nothing_and_end_the_run(tmp_path, capsys):
    assert main(["fit", *words(tmp_path, *STANDS, "trainer.max_epochs=9", "trainer.callbacks.best.patience=3")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "ended after" in line]
    assert re.search(r"ended after 3 of 9 iterations: no evaluation since iteration 0 was better .*40 problems", line)
    assert same_weights(weights(tmp_path, "best"), weights(tmp_path, "start"))
    assert (state(tmp_path)["iteration"], state(tmp_path)["waited"]) == (0, 3)


def test_a_resumed_run_has_the_best_weights_of_the_uninterrupted_one(tmp_path):
    more = ("trainer.callbacks.best.comparisons=6", *LEARNS)
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    fit(whole, *more, "trainer.max_epochs=6")
    fit(first, *more, "trainer.max_epochs=5")
    assert 0 < state(first)["iteration"] <= 5
    fit(second, *more, "trainer.max_epochs=6", f"ckpt_path='{first}/checkpoints/last.ckpt'")
    assert state(second) == state(whole)
    assert same_weights(weights(second, "best"), weights(whole, "best"))


def test_a_resumed_run_without_the_best_weights_begins_to_compare_again(tmp_path, caplog):
    first, second = tmp_path / "first", tmp_path / "second"
    fit(first, *STANDS, "trainer.max_epochs=1")
    (first / "checkpoints" / "best.ckpt").unlink()
    fit(second, *STANDS, "trainer.max_epochs=2", f"ckpt_path='{first}/checkpoints/last.ckpt'")
    assert state(second)["iteration"] == 2 and "best.ckpt is gone" in caplog.text


@pytest.mark.parametrize(
    "change, message",
    [
        ("trainer.callbacks.best.level=1", r"best.level must be in \(0, 1\), got 1"),
        ("trainer.callbacks.best.patience=0", "best.patience must be at least 1, got 0"),
        ("trainer.callbacks.best.mode=most", "best.mode must be max or min"),
        ("trainer.callbacks.best.monitor=val/sample/digits/n", "best.monitor='val/sample/digits/n' must be a mean"),
        (
            "trainer.callbacks.best.monitor=val/beam/digits/digits",
            r"no decode 'beam'; there are \['greedy', 'sample'\]",
        ),
        (
            "trainer.callbacks.best.monitor=val/sample/word/digits",
            r"no evaluator 'word'; there are \['digits', 'exact'\]",
        ),
        ("data.evaluation=null", "which nothing measures without data.evaluation"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_first_evaluation(change, message, tmp_path, capsys):
    base = [word for word in BEST if change != "data.evaluation=null" or not word.startswith("data.evaluation")]
    keys = (
        {change.partition("=")[0], "data.evaluation.count"}
        if "evaluation=null" in change
        else {change.partition("=")[0]}
    )
    chosen = [word for word in words(tmp_path, *base) if word.partition("=")[0] not in keys]
    assert main(["fit", *chosen, change]) != 0
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "metrics.csv").exists()


def test_the_metric_is_the_first_mean_where_none_is_named(tmp_path):
    fit(tmp_path, *[word for word in STANDS if "monitor" not in word], "trainer.max_epochs=1")
    assert set(state(tmp_path)["values"].values()) <= {0.0, 1.0}  # exact of each problem


def test_a_run_without_the_callback_has_no_best_weights(tmp_path):
    fit(tmp_path, "trainer.max_epochs=1")
    assert not (tmp_path / "checkpoints" / "best.ckpt").exists()
    assert BestCheckpoint(patience=None).patience >= 10**9
