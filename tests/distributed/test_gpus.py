"""Two processes on two GPUs, which communicate by NCCL, make the run of one."""

from itertools import chain

import pytest
import torch
from torch.testing import assert_close

from tests.runs.processes import run_ranks
from tests.tiny_recipes import record, words

RECIPE = ("recipe=grpo_kl", "policy.lora={r: 4}", "trainer.max_epochs=2", "trainer.accumulate_grad_batches=2")


def run(folder, accelerator, processes, *more):
    """The records of the processes, with weights in host memory."""
    folder.mkdir()
    chosen = (*RECIPE, f"trainer.accelerator={accelerator}", f"trainer.devices={processes}", *more)
    run_ranks(["fit", *words(folder, *chosen)], folder, processes, seconds=300)
    records = [record(folder, rank) for rank in range(processes)]
    for each in records:
        each["weights"] = {name: value.cpu() for name, value in each["weights"].items()}
    return records


def compare(folder, accelerator, strategy):
    [alone] = run(folder / "alone", accelerator, 1)
    first, second = run(folder / "both", accelerator, 2, f"strategy={strategy}")
    assert_close(first["weights"], second["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=1e-5, rtol=0)
    whole, mine, theirs = (sorted(chain.from_iterable(each["minibatches"])) for each in (alone, first, second))
    assert whole == sorted(mine + theirs) and mine and theirs
    assert max(first["held"], second["held"]) <= (1 if strategy == "ddp" else 0.55) * alone["held"]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_gpus_make_the_run_of_one(strategy, tmp_path):
    compare(tmp_path, "gpu", strategy)
