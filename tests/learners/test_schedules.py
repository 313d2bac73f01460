"""A resumed run follows its own configuration: schedules are replayed at their new length, settings are kept."""

import logging

import pytest
import torch

from mmrl.__main__ import main
from mmrl.config.compose import compose
from mmrl.learners.one_cycle import OneCycle
from mmrl.learners.resume import apply_configuration, options_of
from tests.tiny_recipes import fit, record, words


def linear(total):
    return lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total)


def one_cycle(total):
    return lambda optimizer: OneCycle(optimizer, total)


def cosine(total):
    return lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)


def test_the_option_cosine_falls_to_zero_over_the_run():
    cfg = compose(["recipe=grpo", "scheduler=cosine", "trainer.max_epochs=3", "data.num_minibatches=2"])
    assert cfg.model.scheduler.T_max == 6
    rates = [trained(cosine(6), steps)[0].param_groups[0]["lr"] for steps in (0, 3, 6)]
    assert rates == pytest.approx([0.1, 0.05, 0.0], abs=1e-9)  # (1 + cos(pi t / T)) / 2 of 0.1


def trained(make, steps, **settings):
    """An optimiser and its schedule after some steps, and what the optimiser was configured with."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], lr=0.1, **settings)
    configured = options_of(optimizer)
    scheduler = make(optimizer)
    for _ in range(steps):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        optimizer.step()
        scheduler.step()
    return optimizer, scheduler, configured


def resume(make, saved, **settings):
    """A new optimiser and schedule that were given the states of a checkpoint, as Lightning does it."""
    optimizer, scheduler, configured = trained(make, 0, **settings)
    optimizer.load_state_dict(saved[0].state_dict())
    scheduler.load_state_dict(saved[1].state_dict())
    apply_configuration(optimizer, configured, scheduler, make)
    return optimizer, scheduler


@pytest.mark.parametrize("family", [linear, one_cycle, cosine])
def test_a_longer_schedule_goes_on_as_if_it_had_been_there_from_the_start(family):
    whole, schedule, _ = trained(family(16), 4)
    optimizer, resumed = resume(family(16), trained(family(4), 4))
    assert optimizer.param_groups[0]["lr"] == whole.param_groups[0]["lr"] > 0
    for _ in range(12):
        resumed.step()
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == whole.param_groups[0]["lr"]


def test_an_equal_schedule_changes_nothing_and_says_nothing(caplog):
    saved = trained(linear(9), 4)
    with caplog.at_level(logging.WARNING):
        optimizer, scheduler = resume(linear(9), saved)
    assert options_of(optimizer) == options_of(saved[0]) and scheduler.state_dict() == saved[1].state_dict()
    assert not caplog.records


def test_settings_of_the_optimiser_are_those_of_the_configuration(caplog):
    with caplog.at_level(logging.WARNING):
        optimizer, _ = resume(linear(9), trained(linear(9), 4), weight_decay=0.3)
    assert optimizer.param_groups[0]["weight_decay"] == 0.3
    assert "weight_decay 0.01 -> 0.3" in caplog.text


def test_a_schedule_that_is_over_before_the_checkpoint_is_refused():
    with pytest.raises(ValueError, match=r"has made 9 optimiser steps.*trainer.max_epochs"):
        resume(one_cycle(4), trained(one_cycle(12), 9))


def test_a_finished_run_that_is_given_more_iterations_learns(tmp_path, caplog):
    shared = ("data.evaluation=null", "scheduler=linear")
    assert main(["fit", *words(tmp_path / "short", *shared, "trainer.max_epochs=2")]) == 0
    last = tmp_path / "short" / "checkpoints" / "last.ckpt"
    with caplog.at_level(logging.WARNING):
        assert main(["fit", *words(tmp_path / "long", *shared, "trainer.max_epochs=4", f"ckpt_path={last}")]) == 0
    short, long = record(tmp_path / "short"), record(tmp_path / "long")
    assert any(not torch.equal(value, long["weights"][name]) for name, value in short["weights"].items())
    # 4 of 8 optimiser steps are made, so the learning rate goes on from the middle
    assert "lr 0 -> 0.00015" in caplog.text
    assert [m["train/learning_rate"] for m in long["metrics"]] == pytest.approx([1.5e-4, 7.5e-5])


def test_an_iteration_at_learning_rate_zero_is_reported(tmp_path, caplog):
    over = ("data.evaluation=null", "scheduler=linear", "model.scheduler.total_iters=2", "trainer.max_epochs=2")
    with caplog.at_level(logging.WARNING):
        assert main(["fit", *words(tmp_path, *over)]) == 0
    assert "iteration 1: the learning rate was 0 in every step" in caplog.text
    assert "iteration 0: the learning rate" not in caplog.text


def test_an_iteration_without_any_term_is_refused(tmp_path):
    zero = "model.objective.coefficients={policy: {_target_: mmrl.schedules.Piecewise, values: {0: 0.0, 1: 1.0}}}"
    with pytest.raises(ValueError, match=r"iteration 0: objective\.coefficients of all terms, \['policy'\], are 0"):
        fit(tmp_path, zero)
