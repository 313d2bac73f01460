"""Runs with partial rollouts: ages, importance weights, parity, resume, and several processes."""

from __future__ import annotations

import lightning as L
import pytest

from mmrl.data.states import is_equal
from tests.data.test_async_data import ASYNC
from tests.data.test_async_processes import STRATEGIES, check_equal, run
from tests.learners.test_resume import same
from tests.tiny_recipes import fit, iterations

LAST = 6
PARTIAL = (
    *("rollout=partial", "data.rollout.cut_tokens=2", "data.sampling.max_tokens=6", "data.sampling.stop=['0','1','2']"),
    *("data.group_size=2", "optimizer.lr=0.01", "trainer.check_val_every_n_epoch=3", f"trainer.max_epochs={LAST}"),
)
SYNC = ("objective=decoupled", "data.pipeline=[old, importance, group_advantage]", "data.staleness=0", "data=async")
EXACT = (*ASYNC, "data.save_versions=true")


class Versions(L.Callback):
    """The span of versions, counted from the learner's, of the choices that are trained on."""

    spans: list[tuple[int, int, int]] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        chosen = batch["action_mask"] & (batch["group"] >= 0)[:, None]
        if chosen.any():
            ages = trainer.current_epoch - batch["choice_versions"][chosen]
            self.spans.append((trainer.current_epoch, int(ages.min()), int(ages.max())))


def spans(folder, *more):
    Versions.spans = []
    done = fit(folder, *more, f"trainer.callbacks.versions={{_target_: {__name__}.Versions}}")
    return done, Versions.spans


@pytest.mark.parametrize("staleness", [0, 1])
def test_choices_are_at_most_so_old_and_ratios_are_read_for_each(staleness, tmp_path):
    done, entries = spans(tmp_path, *PARTIAL, *SYNC[:3], "data=async", f"data.staleness={staleness}")
    assert max(high for *_, high in entries) == 2 + staleness
    assert all(low >= min(k, staleness) and high <= 2 + staleness for k, low, high in entries)
    played = iterations(done)
    assert all(metrics["parity/max"] < 1e-4 for metrics in played if "parity/max" in metrics)
    assert min(metrics["importance/ess"] for metrics in played if "importance/ess" in metrics) < 0.9999
    assert played[-1]["rollout/unfinished"] > 0


def test_an_iteration_in_which_nothing_ended_is_none_of_the_empty_ones(tmp_path):
    more = ("data.sampling.stop=[]", "data.max_empty_iterations=1", "trainer.max_epochs=4")
    done = fit(tmp_path, *PARTIAL, *more)
    assert [metrics["rollout/episodes_collected"] for metrics in iterations(done)] == [0.0, 0.0, 12.0, 12.0]


@pytest.mark.parametrize("more", [SYNC, EXACT], ids=["sync", "async"])
def test_a_resumed_run_is_the_uninterrupted_one(more, tmp_path):
    chosen = (*PARTIAL, *more, "model.scheduler.total_iters=20")
    whole = fit(tmp_path / "whole", *chosen)
    fit(tmp_path / "first", *chosen, "trainer.max_epochs=3")
    resumed = fit(tmp_path / "second", *chosen, f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'")
    same(whole, resumed)
    assert is_equal(whole["data"]["rollout"], resumed["data"]["rollout"]) and whole["data"]["rollout"][0]["groups"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_processes_make_the_run_of_one(strategy, tmp_path):
    alone = fit(tmp_path / "alone", *ASYNC, *PARTIAL)
    check_equal(alone, run(tmp_path / "both", *PARTIAL, *STRATEGIES[strategy]))
