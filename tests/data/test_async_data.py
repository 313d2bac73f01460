"""Collecting while learning: what overlaps, which weights sample what, and how it ends."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.data.async_data import AsyncRolloutData
from mmrl.engines.local import LocalEngine
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.learners.test_resume import RUNS, same
from tests.tiny_recipes import fit, iterations, words

ASYNC = ("data=async", "objective=decoupled", "data.pipeline=[old, importance, group_advantage]")
PATIENCE = 30.0  # seconds until something that should have happened has not
LAST, SHORT = 4, 3  # iterations


def built(folder, *more) -> CLI:
    return CLI(to_lightning(compose(words(folder, *more))))


def engine(kind) -> str:
    return f"data.engine._target_={__name__}.{kind.__name__}"


def checksum(policy) -> float:
    return sum(float(p.detach().double().abs().sum()) for p in policy.parameters())


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rollout")]


# ---------------------------------------------------------------- one run, whatever the threads do


@pytest.mark.parametrize("name", ["text", "control"])
def test_without_staleness_it_is_the_synchronous_run(name, tmp_path):
    chosen = (*RUNS[name], f"trainer.max_epochs={SHORT}", "trainer.check_val_every_n_epoch=1")
    same(fit(tmp_path / "sync", *chosen), fit(tmp_path / "async", *chosen, "data=async", "data.staleness=0"))


class Uneven(LocalEngine):
    """Takes its time with every other call."""

    calls = 0

    def sample(self, requests, sampling):
        type(self).calls += 1
        time.sleep(0.3 * (self.calls % 2))
        return super().sample(requests, sampling)


@pytest.mark.parametrize("staleness", [1, 2])
def test_the_schedule_and_not_the_clock_decides(staleness, tmp_path):
    chosen = (*ASYNC, f"data.staleness={staleness}", f"trainer.max_epochs={SHORT}", "trainer.check_val_every_n_epoch=2")
    one = fit(tmp_path / "one", *chosen)
    same(one, fit(tmp_path / "other", *chosen, engine(Uneven)))
    ages = [metrics["rollout/staleness"] for metrics in one["metrics"] if "rollout/staleness" in metrics]
    assert ages == [float(min(k, staleness)) for k in range(SHORT)]
    assert all(m["parity/max"] < 1e-4 for m in one["metrics"] if "parity/max" in m)


def test_old_rows_are_corrected_for(tmp_path):
    """Fresh rows have ratio 1; those of older weights have not, and annotators see the policy as it is."""
    done = fit(tmp_path, *ASYNC, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=9", "optimizer.lr=0.003")
    first, second, third = ({k: m[k] for k in m if k.startswith("importance/")} for m in iterations(done))
    assert first == pytest.approx({"importance/ratio": 1, "importance/cut": 0, "importance/ess": 1}, abs=1e-4)
    assert second["importance/ess"] < 0.9999 and third["importance/ess"] < 0.9999


@pytest.mark.parametrize("name", ["vla", "control"])
def test_simulators_go_on_in_the_thread(name, tmp_path):
    done = fit(tmp_path, *RUNS[name], "data=async", "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=1")
    ages = [metrics["rollout/staleness"] for metrics in done["metrics"] if "rollout/staleness" in metrics]
    assert ages == [0.0, 1.0, 1.0]


def test_refills_and_filters_go_on_in_the_thread(tmp_path):
    done = fit(tmp_path, "recipe=dapo_clip", *ASYNC, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=9")
    assert [metrics["rollout/staleness"] for metrics in iterations(done)] == [0.0, 1.0, 1.0]


def test_it_learns(tmp_path):
    """Digits are 10 of a hundred characters: what is sampled begins near 0.1 and more than doubles."""
    chosen = ("trainer.max_epochs=16", "trainer.check_val_every_n_epoch=20", "data.num_prompts=16", "data.group_size=8")
    done = fit(tmp_path, *ASYNC, *chosen, "optimizer.lr=0.003", "optimizer.eps=1e-8")
    digits = [metrics["rollout/score/digits"] for metrics in iterations(done)]
    assert digits[0] < 0.2 and min(digits[-3:]) > 2 * digits[0]


# ---------------------------------------------------------------- what happens while what happens


class Meeting(LocalEngine):
    """The second collection goes on when the first rows are trained on, and learning goes on when it has begun."""

    learning, sampling = threading.Event(), threading.Event()
    threads: list[str] = []

    def sample(self, requests, sampling):
        self.threads.append(threading.current_thread().name)
        if len(self.threads) == 2:
            type(self).sampling.set()
            assert self.learning.wait(PATIENCE), "nothing was learned while the second collection was under way"
        return super().sample(requests, sampling)


class Met(L.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.current_epoch == 0 and batch_idx == 0:
            assert Meeting.sampling.wait(PATIENCE), "the second collection did not begin while the first was learned"
            Meeting.learning.set()


def test_sampling_and_learning_overlap(tmp_path):
    """By order of events: either side waits for the other in the middle of its own work."""
    cli = built(tmp_path, *ASYNC, "trainer.max_epochs=3", "data.evaluation=null", engine(Meeting))
    cli.trainer.callbacks.insert(0, Met())
    cli.fit()
    assert len(Meeting.threads) == 3  # and nothing is collected that nobody will learn from
    assert all(name.startswith("rollout") for name in Meeting.threads)


class Witness(LocalEngine):
    """Remembers which weights it was given as which version, and the modes of what it samples."""

    synced: list[tuple[int, float]] = []

    def sync(self, policy, version):
        super().sync(policy, version)
        self.synced.append((version, checksum(policy)))

    def sample(self, requests, sampling):
        before = checksum(self._policy)
        result = super().sample(requests, sampling)
        assert checksum(self._policy) == before, "the weights changed in the middle of a collection"
        assert all(completion.policy_version == self._version for completion in result)
        return result


class Live(L.Callback):
    """What the learner's own weights were when each iteration began, and that learning is in training mode."""

    def __init__(self):
        self.checksums = {}

    def on_train_epoch_start(self, trainer, pl_module):
        self.checksums[trainer.current_epoch] = checksum(pl_module.policy)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        assert pl_module.policy.training and torch.is_grad_enabled()

    def on_train_end(self, trainer, pl_module):
        self.checksums[trainer.current_epoch] = checksum(pl_module.policy)


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_version_is_the_weights_of_its_iteration(staleness, tmp_path):
    """In collections and in evaluations, which always measure the newest weights."""
    Witness.synced.clear()
    chosen = (*ASYNC, f"data.staleness={staleness}", "optimizer.lr=0.01", engine(Witness))
    cli = built(tmp_path, *chosen, f"trainer.max_epochs={LAST}", "trainer.check_val_every_n_epoch=2")
    cli.trainer.callbacks.insert(0, live := Live())
    cli.fit()
    assert len(set(live.checksums.values())) == LAST + 1
    for version, value in Witness.synced:
        assert value == live.checksums[version]
    collected = [max(0, k - staleness) for k in range(LAST)]
    measured = [0, 2, 4]
    assert sorted(version for version, _ in Witness.synced) == sorted(collected + measured)


# ---------------------------------------------------------------- how it ends


class Failing(LocalEngine):
    """Cannot sample a third time."""

    calls, closed = 0, 0

    def sample(self, requests, sampling):
        type(self).calls += 1
        if self.calls == 3:
            raise OSError("the engine is on fire")
        return super().sample(requests, sampling)

    def close(self):
        type(self).closed += 1


def test_a_failure_in_the_thread_is_that_of_the_run(tmp_path):
    cli = built(tmp_path, *ASYNC, "trainer.max_epochs=9", "data.evaluation=null", engine(Failing))
    with pytest.raises(OSError, match="the engine is on fire") as caught:
        cli.fit()
    assert "sample" in [entry.name for entry in caught.traceback]  # where it happened, not only where it was noticed
    assert cli.trainer.current_epoch == 2 and Failing.closed >= 1


class Interrupted(L.Callback):
    def __init__(self, error):
        self.error = error

    def on_train_batch_end(self, trainer, *_: Any):
        if trainer.current_epoch == 1:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("stop")], ids=["ctrl-c", "error"])
def test_the_thread_ends_with_the_run(error, tmp_path):
    cli = built(tmp_path, *ASYNC, "trainer.max_epochs=9", "data.evaluation=null", engine(Uneven))
    cli.trainer.callbacks.append(Interrupted(error))
    with pytest.raises((ValueError, SystemExit, KeyboardInterrupt)):
        cli.fit()


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_knows_nothing_of_what_is_under_way(tmp_path):
    chosen = (*ASYNC, "trainer.check_val_every_n_epoch=9")
    quick = fit(tmp_path / "sync", "trainer.max_epochs=2", "trainer.check_val_every_n_epoch=9")
    long = fit(tmp_path / "async", *chosen, "trainer.max_epochs=4", "trainer.callbacks.checkpoint.every_n_epochs=2")
    (saved,) = (tmp_path / "async/checkpoints").glob("epoch=1.ckpt")
    state = read_checkpoint(saved)["AsyncRolloutData"]
    assert all(
        not kept for kept in state.pop("annotators").values()
    )  # importance adds annotators, which remember nothing
    quick["data"].pop("annotators")
    assert state == quick["data"]
    resumed = fit(tmp_path / "resumed", *chosen, "trainer.max_epochs=4", f"ckpt_path='{saved}'")
    assert resumed["data"] == long["data"]
    assert [metrics["rollout/staleness"] for metrics in iterations(resumed)] == [0.0, 1.0]
    again = fit(tmp_path / "again", *chosen, "trainer.max_epochs=4", f"ckpt_path='{saved}'")
    assert_close(resumed["weights"], again["weights"], rtol=0, atol=0)


def test_without_staleness_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    chosen = (*ASYNC, "data.staleness=0", "trainer.check_val_every_n_epoch=1", "model.scheduler.total_iters=20")
    whole = fit(tmp_path / "whole", *chosen, "trainer.max_epochs=4")
    fit(tmp_path / "first", *chosen, "trainer.max_epochs=2")
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    same(whole, fit(tmp_path / "second", *chosen, "trainer.max_epochs=4", checkpoint))


# ---------------------------------------------------------------- refusals


def test_refusals(tmp_path):
    in_process = SimpleNamespace(thread_obstacle="vLLM opens process groups")
    two = SimpleNamespace(staleness=1, trainer=SimpleNamespace(world_size=2), engine=in_process)
    with pytest.raises(ConfigError, match=r"data\.staleness=1 with trainer.devices > 1: vLLM.*engine=vllm_server"):
        AsyncRolloutData._refuse_engine(two)
    with pytest.raises(ValueError, match="64-true"):
        fit(tmp_path, *ASYNC, "trainer.precision=64-true", "trainer.max_epochs=1")
    with pytest.raises(ValueError, match=r"data\.staleness must be at least 0"):
        fit(tmp_path, *ASYNC, "data.staleness=-1")
    assert AsyncRolloutData.staleness == 0
