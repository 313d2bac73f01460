"""Schedules, transforms and rows with a state: a resumed run is the uninterrupted one."""

from types import SimpleNamespace

import lightning as L
import pytest
import torch
import yaml
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.distributed import parallel
from mmrl.learners.learner import Learner
from mmrl.objectives.objective import Objective
from mmrl.objectives.regularizer import Entropy
from mmrl.policies.text.policy import TextPolicy
from mmrl.runs.checkpoint_file import read_checkpoint
from mmrl.transforms.rows.replay import STRIDE
from tests.learners.test_resume import same
from tests.policies.text.oracle import TINY
from tests.tiny_recipes import fit

LENGTHS = "data.sampling.max_tokens={_target_: mmrl.schedules.Alternating, values: [5, 2], iterations: 1}"
RUN = (
    LENGTHS,
    "data.sampling.temperature={_target_: mmrl.schedules.Linear, start: 1.0, end: 0.7, iterations: 3}",
    "data.reward.weights.exact={_target_: mmrl.schedules.Linear, start: 1, end: 0, iterations: 4}",
    "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
    "objective.coefficients.entropy={_target_: mmrl.schedules.EntropyBand, start: 0.5, low: 0, high: 0.1, step: 0.1}",
    "model.scheduler.total_iters=20",
    "trainer.check_val_every_n_epoch=2",
    "data.num_prompts=3",
    "data.transforms={drop_zero_variance: null, third: {_target_: tests.transforms.test_state.LeaveOutThird}}",
    "data.rows.replay={_target_: mmrl.transforms.rows.replay.ReplayRows, groups: 2, max_age: 2}",
    "data.rows.select={_target_: mmrl.transforms.rows.select.SelectByAdvantage, fraction: 0.75}",
)
LAST = 4


def scheduled(done: dict, name: str) -> list[float]:
    return [metrics[f"schedule/{name}"] for metrics in done["metrics"] if f"schedule/{name}" in metrics]


def longest(done: dict) -> list[int]:
    """The longest completion that each iteration sampled; it has two minibatches."""
    own = [[len(actions) for group, actions in rows if group < STRIDE] for rows in done["minibatches"]]
    by_batch = [max(lengths, default=0) for lengths in own]
    return [max(pair) for pair in zip(by_batch[::2], by_batch[1::2])]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, fit(folder, *RUN, f"trainer.max_epochs={LAST}")


def test_every_iteration_has_its_values(whole):
    folder, done = whole
    assert scheduled(done, "data.sampling.temperature") == pytest.approx([1.0, 0.9, 0.8, 0.7])
    assert scheduled(done, "data.sampling.max_tokens") == [5, 2, 5, 2] == longest(done)
    assert scheduled(done, "data.reward.weights.exact") == [1, 0.75, 0.5, 0.25]
    assert scheduled(done, "model.objective.coefficients.entropy") == pytest.approx([0.5, 0.4, 0.3, 0.2])
    ages = [metrics["rows/staleness"] for metrics in done["metrics"] if "rows/staleness" in metrics]
    assert ages[0] == 0 and min(ages[1:]) > 0
    config = yaml.safe_load((folder / "config.yaml").read_text())["data"]["init_args"]
    assert config["sampling"]["max_tokens"] == 2 and len(config["schedules"]) == 4
    assert config["sampling"]["temperature"] == pytest.approx(0.7)


def test_a_resumed_run_is_the_uninterrupted_one(whole, tmp_path):
    fit(tmp_path / "first", *RUN, "trainer.max_epochs=2")
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    second = fit(tmp_path / "second", *RUN, f"trainer.max_epochs={LAST}", checkpoint)
    same(whole[1], second)
    assert second["data"]["transforms"] == whole[1]["data"]["transforms"]
    assert_close(second["data"]["rows"], whole[1]["data"]["rows"], atol=0, rtol=0)
    assert second["data"]["transforms"]["third"]["iterations"] == LAST


def test_asynchronous_collection_has_the_values_of_its_own_iteration(tmp_path):
    """The state in a checkpoint is the one after the rows that were trained on, not of what is under way."""
    pipeline = ("objective=decoupled", "data.pipeline=[old, importance, group_advantage]")
    more = ("data=async", "data.staleness=2", *pipeline, "trainer.callbacks.checkpoint.every_n_epochs=2")
    done = fit(tmp_path, *RUN, *more, f"trainer.max_epochs={LAST}")
    assert scheduled(done, "data.sampling.max_tokens") == [5, 2, 5, 2] == longest(done)
    assert scheduled(done, "data.reward.weights.exact") == [1, 0.75, 0.5, 0.25]
    state = read_checkpoint(tmp_path / "checkpoints/epoch=1.ckpt")["AsyncRolloutData"]["transforms"]
    assert state["third"]["iterations"] == 2 and done["data"]["transforms"]["third"]["iterations"] == LAST


def test_a_resumed_run_has_the_coefficients_of_its_configuration(tmp_path):
    words = ("objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}", "trainer.max_epochs=1")
    before = fit(tmp_path / "first", *words, "objective.coefficients.entropy=0.5")
    assert before["weights"]["objective.coefficient_entropy"] == 0.5
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    more = (words[0], "trainer.max_epochs=2", "objective.coefficients.entropy=0.25", checkpoint)
    assert fit(tmp_path / "second", *more)["weights"]["objective.coefficient_entropy"] == 0.25


class StopAt(L.Callback):
    """Asks the run to stop after the first step of an iteration, as Lightning's timer may."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop |= trainer.current_epoch == self.epoch


def test_a_run_that_is_asked_to_stop_finishes_its_iteration(tmp_path):
    """So that the resumed run has every step of the uninterrupted one."""
    words = ("trainer.max_epochs=3", "trainer.check_val_every_n_epoch=1", "data.num_minibatches=2")
    whole = fit(tmp_path / "whole", *words)
    stop = "trainer.callbacks.stop_at={_target_: tests.learners.test_resume_state.StopAt, epoch: 1}"
    first = fit(tmp_path / "first", *words, stop)
    assert len(first["minibatches"]) == 4 and first["data"]["iteration"] == 2
    second = fit(tmp_path / "second", *words, f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'")
    same(whole, second)


DROPOUT = ("policy.lora={r: 4, lora_dropout: 0.5}", "scheduler=constant", "trainer.check_val_every_n_epoch=2")


def test_a_resumed_run_has_the_dropout_of_the_uninterrupted_one(tmp_path):
    whole = fit(tmp_path / "whole", *DROPOUT, "trainer.max_epochs=2")
    fit(tmp_path / "first", *DROPOUT, "trainer.max_epochs=1")
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    second = fit(tmp_path / "second", *DROPOUT, "trainer.max_epochs=2", checkpoint)
    assert_close(second["weights"], whole["weights"], atol=0, rtol=0)


def test_processes_have_different_dropout(monkeypatch):
    """Of one run, which all its processes begin with the same seed of torch."""
    learner = Learner(TextPolicy(config=dict(TINY)), Objective({"entropy": Entropy()}), torch.optim.SGD)
    trainer = SimpleNamespace(datamodule=SimpleNamespace(seed=3), current_epoch=1, optimizers=[])
    monkeypatch.setattr(Learner, "trainer", trainer)
    batch = Batch(loss_weights=torch.ones(1, 1))

    def draw(rank, index):
        monkeypatch.setattr(parallel, "rank_and_size", lambda: (rank, 2))
        learner.on_train_batch_start(batch, index)
        return torch.rand(3)

    assert torch.equal(draw(0, 0), draw(0, 0))
    assert not torch.equal(draw(0, 0), draw(1, 0)) and not torch.equal(draw(0, 0), draw(0, 1))
