"""Runs that end before their last iteration: the last row of metrics has an evaluation, and the run resumes."""

import json

import lightning as L
import pytest
from lightning.pytorch.callbacks import Timer

from mmrl.commands.evaluate import evaluate
from mmrl.runs.metrics_csv import read_rows
from tests.runs.words import fit

STOP = "trainer.callbacks.stop={_target_: lightning.pytorch.callbacks.EarlyStopping, mode: max, stopping_threshold: -1"
ENDS = {
    "max_time": ("trainer.max_time=00:10:00:00", "trainer.callbacks.clock._target_=tests.learners.test_early_end.Late"),
    "reward": (f"{STOP}, monitor: rollout/reward, check_on_train_epoch_end: true}}",),
    "interim": (f"{STOP}, monitor: val/greedy/exact/mean}}", "trainer.check_val_every_n_epoch=1"),
}


class Late(L.Callback):
    """Uses up the time of the run in the first step of its first iteration."""

    def on_train_batch_end(self, trainer, *_):
        timer = next(each for each in trainer.callbacks if isinstance(each, Timer))
        timer._offset = 36000.0


@pytest.mark.parametrize("end", ENDS)
def test_the_last_row_is_an_evaluation_of_all_problems(end, tmp_path, capsys):
    more = ("trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2", "data.evaluation.interim_count=2")
    more += ("trainer.enable_progress_bar=true",)
    more += ("trainer.callbacks.progress._target_=mmrl.callbacks.progress.Progress",)
    assert fit(tmp_path, *more, *ENDS[end]) == 0
    output = capsys.readouterr().out
    assert "ended after 1 of 3 iterations: " in output
    assert ("trainer.max_time" in output) == (end == "max_time")
    assert ("end: held-out" in output) == (end != "max_time")  # which is known before the evaluation of the iteration
    rows = [row for row in read_rows(tmp_path / "metrics.csv") if "val/greedy/exact/mean" in row]
    assert float(rows[-1]["iterations"]) == 1
    evaluate([str(tmp_path)])
    measured = json.loads((tmp_path / "evaluation.json").read_text())["metrics"]["last"]["greedy"]["exact"]
    assert float(rows[-1]["val/greedy/exact/mean"]) == pytest.approx(measured["mean"])
    assert float(rows[-1]["val/greedy/exact/upper"]) == pytest.approx(measured["upper"])


def test_a_run_that_ran_out_of_time_resumes_as_if_it_had_not(tmp_path):
    more = ("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=2")
    assert fit(tmp_path / "cut", *more, *ENDS["max_time"]) == 0
    last = tmp_path / "cut" / "checkpoints" / "last.ckpt"
    assert fit(tmp_path / "cut", *more, "trainer.max_time=09:10:00:00", f"ckpt_path={last}") == 0
    assert fit(tmp_path / "whole", *more) == 0
    resumed, whole = (tmp_path / name / "policy" / "model.safetensors" for name in ("cut", "whole"))
    assert resumed.read_bytes() == whole.read_bytes()
