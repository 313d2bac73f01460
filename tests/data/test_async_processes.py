"""Sampling beside learning in several processes makes the run of one; the threads have a process group of their own."""

from __future__ import annotations

import json
import threading
import time
from itertools import chain
from pathlib import Path

import lightning as L
import pytest
import torch.distributed as dist
from torch.testing import assert_close

from mmrl.engines.local import LocalEngine
from tests.data.test_async_data import ASYNC
from tests.engines.vllm.model_server import write_python
from tests.engines.vllm.test_several_processes import DDP
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, iterations, record, words

BASE = (*ASYNC, "optimizer.lr=0.003", "trainer.max_epochs=4", "trainer.check_val_every_n_epoch=2")
SAVED = ("data.staleness=2", "data.save_versions=true", "trainer.callbacks.checkpoint.every_n_epochs=2")
STRATEGIES = {"ddp": (DDP,), "fsdp2": ("strategy=fsdp2",)}
CALLS = (
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "broadcast",
)


class UnevenRanks(LocalEngine):
    """Sampling takes longer on one process, in turns."""

    calls = 0

    def sample(self, requests, sampling):
        type(self).calls += 1
        time.sleep(0.2 * ((self.calls + dist.get_rank()) % 2))
        return super().sample(requests, sampling)


class FailsOnOne(LocalEngine):
    """Cannot sample a second time on process 1."""

    calls = 0

    def sample(self, requests, sampling):
        type(self).calls += 1
        if dist.get_rank() == 1 and self.calls == 2:
            raise OSError("the engine is on fire")
        return super().sample(requests, sampling)


class Audit(L.Callback):
    """Writes which thread made collectives over which group, and learns slowly on process 0 in one iteration.

    Args:
        folder: of the files, one for each rank.
    """

    def __init__(self, folder: str):
        self.folder, self.calls = Path(folder), set()

    def on_fit_start(self, trainer, pl_module):
        for name in CALLS:
            setattr(dist, name, self.note(getattr(dist, name)))

    def note(self, function):
        def noted(*args, **kwargs):
            group = kwargs.get("group") or next((a for a in args if isinstance(a, dist.ProcessGroup)), None)
            name = "" if group is None else group.group_desc
            self.calls.add((threading.current_thread().name.partition("_")[0], name == "sampling"))
            return function(*args, **kwargs)

        return noted

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.current_epoch == 1 and trainer.global_rank == 0:
            time.sleep(0.5)

    def on_fit_end(self, trainer, pl_module):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"calls{trainer.global_rank}.json").write_text(json.dumps(sorted(self.calls)))


def engine(kind):
    return f"data.engine._target_={__name__}.{kind.__name__}"


def run(folder, *more):
    folder.mkdir(parents=True, exist_ok=True)
    run_ranks(["fit", *words(folder, *BASE, "trainer.devices=2", *more)], folder)
    return [record(folder, rank) for rank in range(2)]


def check_equal(alone, ranks):
    """The rows of both processes are those of one, in the same minibatches, and the weights and ages as well."""
    count = len(ranks[0]["minibatches"])
    for whole, *parts in zip(alone["minibatches"][-count:], *(rank["minibatches"] for rank in ranks), strict=True):
        assert sorted(whole) == sorted(chain(*parts))
    assert_close(ranks[0]["weights"], ranks[1]["weights"], atol=0, rtol=0)
    assert_close(ranks[0]["weights"], alone["weights"], atol=2e-6, rtol=0)
    for rank in ranks:
        ages = [metrics.get("rollout/staleness") for metrics in iterations(rank)]
        assert ages == [metrics.get("rollout/staleness") for metrics in iterations(alone)][-len(ages) :]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of one process that is not broken off, two versions behind, and its checkpoint in the middle."""
    folder = tmp_path_factory.mktemp("alone")
    whole = fit(folder, *BASE, *SAVED)
    assert [metrics["rollout/staleness"] for metrics in iterations(whole)] == [0.0, 1.0, 2.0, 2.0]
    return whole, f"ckpt_path='{folder}/checkpoints/epoch=1.ckpt'"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_processes_make_the_run_of_one(strategy, alone, tmp_path):
    """Whatever is slow; and no thread uses the group of the other one."""
    audit = f"trainer.callbacks.audit={{_target_: {__name__}.Audit, folder: '{tmp_path}'}}"
    check_equal(alone[0], run(tmp_path / "both", *STRATEGIES[strategy], *SAVED[:1], engine(UnevenRanks), audit))
    for rank in range(2):
        calls = json.loads((tmp_path / f"calls{rank}.json").read_text())
        assert calls == [["MainThread", False], ["rollout", True]]


def test_two_sharded_processes_resume_the_run_of_one(alone, tmp_path):
    """With the weights that sampled what was under way, which the checkpoint holds."""
    check_equal(alone[0], run(tmp_path / "resumed", *STRATEGIES["fsdp2"], *SAVED[:2], alone[1]))


def test_a_pool_of_servers_answers_the_threads_of_two_processes(tmp_path):
    def servers(name):
        (tmp_path / name).mkdir()
        write_python(tmp_path / name)
        own = (f"engine.python={tmp_path}/{name}/python", f"engine.logs={tmp_path}/{name}/servers")
        return "engine=vllm_server", *own, "trainer.max_epochs=3"

    whole = fit(tmp_path / "alone", *BASE, *servers("alone"))
    ranks = run(tmp_path / "both", *servers("both"), "engine.servers=2", DDP)
    check_equal(whole, ranks)
    played = [metrics for metrics in iterations(ranks[1]) if "engine/tokens" in metrics]
    assert len(played) == 3 and all(metrics["rollout/errors"] == 0 for metrics in played)


def test_a_failure_of_one_process_ends_both(tmp_path):
    """The other one is told the reason, and does not wait for the time limit of the group."""
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="exit code"):
        run(tmp_path, DDP, engine(FailsOnOne), "data.evaluation=null")
    first, second = ((tmp_path / f"rank{rank}.log").read_text() for rank in range(2))
    assert "the engine is on fire" in second
    assert "process 1 failed while it sampled beside the learner: OSError: the engine is on fire" in first
    assert time.monotonic() - began < 110
