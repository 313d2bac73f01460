"""Values of options that libraries take and that train nothing, or end in their own errors: refused by their key."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mmrl.__main__ import main
from mmrl.commands.limits import check_limits, explain_system_error
from mmrl.config.bounds import find_violation
from mmrl.config.code.slots import check_empty_names
from mmrl.config.part_checks import check_parts
from mmrl.config.preflight import check_config
from mmrl.core.errors import ConfigError
from mmrl.learners.monitors import refuse_monitors
from mmrl.ops.choice import support
from mmrl.runs.run_folder import claim_folder

NUMBERS = [
    *(
        (f"model.policy.config.{name}", value)
        for name in ("attention_dropout", "hidden_dropout", "resid_pdrop", "classifier_dropout", "layerdrop")
        for value in (2, -1, 1.5, -0.1, float("nan"), float("inf"), 100)
    ),
    *(
        (f"model.policy.config.{name}", value)
        for name in ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "head_dim", "n_layer")
        for value in (0, -1, 1.5, 10**8, float("nan"), float("-inf"))
    ),
    *(
        (f"model.policy.config.text_config.{name}", value)
        for name in ("num_hidden_layers", "hidden_size", "attention_dropout")
        for value in (-1, 10**8, float("nan"))
    ),
    *(("trainer.limit_train_batches", value) for value in (0, 0.0, -1, float("nan"), 10**12)),
    *(("trainer.overfit_batches", value) for value in (-1, float("nan"))),
    *(("data.num_prompts", value) for value in (0, -1, 1.5, float("nan"), 10**10)),
    *(("model.optimizer.lr", value) for value in (-1, 1001, float("nan"), float("inf"))),
    *(("seed_everything", value) for value in (-1, 2**32, 1.5, float("nan"))),
]
SETTINGS = [
    *({"precision": value} for value in (64, "64", "64-true")),
    *(
        {"max_time": value}
        for value in (
            "00:00:00:00",
            "0:0:0:0",
            "00:00:00",
            {"days": 0},
            {"hours": 0, "minutes": 0},
            {"seconds": 0},
            {"minutes": -3},
            {"hours": 1, "seconds": -1},
            {"fortnights": 1},
        )
    ),
    *(
        {"callbacks": [{"class_path": f"lightning.pytorch.callbacks.{name}"}]}
        for name in ("LearningRateFinder", "BatchSizeFinder", "Timer")
    ),
]


@pytest.mark.parametrize(("key", "value"), NUMBERS, ids=str)
def test_numbers_outside_of_their_range(key, value):
    assert find_violation(key, value) is not None


@pytest.mark.parametrize("trainer", SETTINGS, ids=str)
def test_settings_of_the_trainer(trainer):
    with pytest.raises(ConfigError, match=r"trainer\."):
        check_config({"seed_everything": 0, "trainer": trainer})


@pytest.mark.parametrize("limit", [None, "00:00:00:01", {"minutes": 1}, "00:01:00:00"], ids=str)
def test_a_time_limit_is_right(limit):
    check_config({"seed_everything": 0, "trainer": {"max_time": limit, "limit_train_batches": 1.0}})


OPTIMIZERS = {
    "SparseAdam": ({}, "dense gradient"),
    "LBFGS": ({}, "closure"),
    "Adam": ({"lr": -1.0}, "lr"),
    "SGD": ({"lr": 0.1, "nesterov": True}, "nesterov|Nesterov"),
    "AdamW": ({"betas": [2.0, 0.9]}, "beta"),
}
SCHEDULES = {
    "CyclicLR": ({"base_lr": 1.0, "max_lr": 0.0}, "base_lr"),
    "ExponentialLR": ({"gamma": -1.0}, "learning rate of step"),
    "LinearLR": ({"start_factor": 2.0}, "start_factor|[Ff]actor"),
    "StepLR": ({"step_size": 1, "gamma": -0.5}, "learning rate of step"),
    "MultiplicativeLR": ({"lr_lambda": 3}, "lr_lambda"),
    "OneCycleLR": ({"max_lr": 0.0, "total_steps": 10}, "is 0 in the first 10 steps"),
    "ConstantLR": ({"factor": 0.0, "total_iters": 10**6}, "is 0 in the first 20000 steps"),
    "CosineAnnealingLR": ({"T_max": 0}, "ZeroDivisionError.*T_max"),
    "PolynomialLR": ({"total_iters": 4, "power": -1.0}, "ZeroDivisionError.*power"),
}


def learner(optimizer, arguments, scheduler=None):
    parts = {"optimizer": {"class_path": f"torch.optim.{optimizer}", "init_args": arguments}, "scheduler": scheduler}
    return {"class_path": "mmrl.learners.learner.Learner", "init_args": parts}


DATA = {"class_path": "mmrl.data.rollout_data.RolloutData", "init_args": {}}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_that_cannot_step(name):
    arguments, expected = OPTIMIZERS[name]
    with pytest.raises(ConfigError, match=rf"model\.optimizer.*({expected})"):
        check_parts(learner(name, arguments), DATA)
    check_parts(learner(name, arguments), DATA, trains=False)  # a run that is measured needs none


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_that_train_nothing(name):
    arguments, expected = SCHEDULES[name]
    spec = {"class_path": f"torch.optim.lr_scheduler.{name}", "init_args": arguments}
    with pytest.raises(ConfigError, match=rf"model\.scheduler.*({expected})"):
        check_parts(learner("SGD", {"lr": 0.1, "momentum": 0.9}, spec), DATA)


def test_a_learning_rate_of_0_that_the_optimiser_has_is_right():
    spec = {"class_path": "torch.optim.lr_scheduler.LinearLR", "init_args": {"start_factor": 0.5}}
    check_parts(learner("SGD", {"lr": 0.0}, spec), DATA)
    late = {"class_path": "torch.optim.lr_scheduler.LinearLR", "init_args": {"start_factor": 1e-8, "total_iters": 500}}
    check_parts(learner("SGD", {"lr": 0.1}, late), DATA)


@pytest.mark.parametrize("value", [{}, []], ids=str)
@pytest.mark.parametrize("name", ["tasks", "Parts", "", "split2", "counts_", "x.y"])
def test_unknown_names_with_empty_values(name, value):
    part = {"class_path": "tasks.mixture.task.Mixture", "init_args": {"parts": {"a": 1}, name: value}}
    with pytest.raises(ConfigError, match="unknown key"):
        check_empty_names({"data": {"class_path": DATA["class_path"], "init_args": {"task": part}}})
    check_empty_names({"data": {"class_path": "tasks.mixture.task.Mixture", "init_args": {"counts": value}}})


@pytest.mark.parametrize("monitor", ["nope", "train/nope", "loss", "val/nope", "val/greedy/exact", "", "VAL/x"])
def test_metrics_that_no_run_has(monitor):
    names = ["train/imitation", "val/greedy/exact/mean"]
    beginning = "val/" if monitor.startswith("val/") else ""
    callback = SimpleNamespace(monitor=monitor)
    with pytest.raises(ValueError, match="no metric of this run"):
        refuse_monitors([callback], names, beginning)
    refuse_monitors([callback], [], beginning)
    refuse_monitors([SimpleNamespace(monitor=names[0]), SimpleNamespace(monitor=None), object()], names, beginning)


@pytest.mark.parametrize("top_p", [5e-324, 1e-300, 1e-46, 1e-45, 1e-38, 1e-20, 1e-7, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_at_least_the_likeliest_token_is_kept(top_p, dtype):
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 5.0, 5.0]], dtype=dtype)
    ids = support(logits, top_k=0, top_p=top_p, min_p=0.0)
    assert ids[0, 0] == 1 and ids[1, 0] >= 0
    if top_p < 0.3:
        assert (ids >= 0).sum(dim=-1).tolist() == [1, 1]


def test_folders_of_one_second_get_numbers(tmp_path):
    names = [claim_folder(tmp_path / "runs" / "20260101-000000").name for _ in range(3)]
    assert names == ["20260101-000000", "20260101-000000-2", "20260101-000000-3"]


def test_errors_of_the_system_are_told():
    for number in (24, 28, 30, 13, 12, 36):
        message = explain_system_error(OSError(number, os.strerror(number), "runs/x"))
        assert message is not None and message.startswith("runs/x: ") and ";" in message
    assert "memory" in str(explain_system_error(MemoryError()))
    assert explain_system_error(OSError(5, "x")) is None and explain_system_error(ValueError()) is None


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [(resource.RLIMIT_NOFILE, 20, "open files"), (resource.RLIMIT_AS, 2**30, "address space")],
    ids=["files", "space"],
)
def test_small_limits_are_refused(kind, value, expected):
    before = resource.getrlimit(kind)
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(kind, (value, value))
        try:
            check_limits()
        except ConfigError as error:
            os._exit(0 if expected in str(error) else 2)
        os._exit(3)
    assert os.waitpid(pid, 0)[1] == 0
    assert resource.getrlimit(kind) == before


def test_there_are_enough_values():
    assert len(NUMBERS) + len(SETTINGS) >= 90 and Path(__file__).exists()


@pytest.mark.parametrize("words", [["--help"], [], ["fit", "--help"], ["--version"], ["list", "recipes"]], ids=str)
def test_a_full_disk_behind_the_output_is_one_line(words, monkeypatch, capsys):
    with suppress(OSError), open("/dev/full", "w") as full:  # whose end writes what is left
        monkeypatch.setattr("sys.stdout", full)
        status = main(words)
        monkeypatch.undo()
    assert status == 1 and "the disk is full; make room" in capsys.readouterr().err
