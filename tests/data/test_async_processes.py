"""Sampling beside learning in several processes: the run of one process, whose threads talk over a group of their own."""

from __future__ import annotations

import pytest
from torch.testing import assert_close

from tests.data.test_async_data import ASYNC
from tests.engines.vllm.test_several_processes import DDP
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, iterations, record, words

BASE = (*ASYNC, "optimizer.lr=0.003", "trainer.max_epochs=4", "trainer.check_val_every_n_epoch=2")
STRATEGIES = {"ddp": (DDP,), "fsdp2": ("strategy=fsdp2",)}


def run(folder, *more, processes=2):
    folder.mkdir(parents=True, exist_ok=True)
    run_ranks(["fit", *words(folder, *BASE, f"trainer.devices={processes}", *more)], folder, processes)
    return [record(folder, rank) for rank in range(processes)]


def check_equal(alone, ranks):
    """The rows of both processes are those of one, in the same minibatches, and the weights and ages as well."""
    for whole, *parts in zip(alone["minibatches"], *(rank["minibatches"] for rank in ranks), strict=True):
        assert sorted(whole) == sorted(sum(parts, []))
    assert_close(ranks[0]["weights"], ranks[1]["weights"], atol=0, rtol=0)
    assert_close(ranks[0]["weights"], alone["weights"], atol=2e-6, rtol=0)
    for rank in ranks:
        ages = [metrics["rollout/staleness"] for metrics in iterations(rank)]
        assert ages == [metrics["rollout/staleness"] for metrics in iterations(alone)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_processes_make_the_run_of_one(strategy, tmp_path):
    alone = fit(tmp_path / "alone", *BASE)
    check_equal(alone, run(tmp_path / "both", *STRATEGIES[strategy]))
    assert [metrics["rollout/staleness"] for metrics in iterations(alone)] == [0.0, 1.0, 1.0, 1.0]
