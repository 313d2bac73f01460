"""The bound on staleness, and runs whose checkpoints hold the weights that sampled what was under way."""

from __future__ import annotations

import time
from types import SimpleNamespace

import lightning as L
import pytest
import torch

from mmrl.data.snapshots import Snapshots
from tests.data.test_async_data import ASYNC, LAST, Uneven, engine
from tests.learners.test_resume import same
from tests.tiny_recipes import fit


class Ages(L.Callback):
    """The ages of the rows that are trained on, while learning is slow in every other iteration."""

    ages: dict[int, set[int]] = {}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        time.sleep(0.2 * (trainer.current_epoch % 2))
        ages = trainer.current_epoch - batch["policy_version"][batch["group"] >= 0]
        self.ages.setdefault(trainer.current_epoch, set()).update(ages.tolist())


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_run_that_saves_its_versions_resumes_as_the_uninterrupted_one(staleness, tmp_path):
    """Bit for bit, and no row is older than allowed, whatever is slow, measured, saved or broken off in between."""
    ages = f"trainer.callbacks.ages={{_target_: {__name__}.Ages}}"
    often = ("trainer.check_val_every_n_epoch=1", "trainer.callbacks.checkpoint.every_n_epochs=1", ages)
    chosen = (*ASYNC, *often, f"data.staleness={staleness}", "data.save_versions=true", "optimizer.lr=0.003")
    scheduled = (*chosen, "model.scheduler.total_iters=20", engine(Uneven))
    whole = fit(tmp_path / "whole", *scheduled, f"trainer.max_epochs={LAST}")
    fit(tmp_path / "first", *scheduled, "trainer.max_epochs=2")  # a run that has come to its end goes on as well
    for name in ("first/checkpoints/last.ckpt", "whole/checkpoints/epoch=1.ckpt"):
        Ages.ages = {}
        more = (f"trainer.max_epochs={LAST}", f"ckpt_path='{tmp_path / name}'")
        same(whole, fit(tmp_path / f"resumed-{name[:5]}", *scheduled, *more))
        assert Ages.ages == {k: {min(k, staleness)} for k in range(2, LAST)}


def test_saved_versions_of_another_policy_are_refused():
    data = SimpleNamespace(of=lambda policy, version: policy)
    policy = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"version 3 and the policy differ in 'bias'.*data\.save_versions=false"):
        Snapshots.load_state_dict(data, policy, {3: {"weight": torch.zeros(2, 2)}})
