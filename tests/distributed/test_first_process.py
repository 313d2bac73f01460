"""Weights are loaded in the first process alone, and the others receive their shards of them."""

import json

import lightning as L
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close

from mmrl.distributed.first_process import (
    build_without_weights,
    has_weights,
    is_first_process,
    receive_weights,
    take_weights,
)
from mmrl.policies.text.policy import TextPolicy
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, record, whole, words

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)


class Seen(L.Callback):
    """Writes whether the policy has weights before the processes know each other."""

    def __init__(self, folder: str):
        self.folder = folder

    def setup(self, trainer, pl_module, stage):
        models = {"policy": pl_module.policy, **pl_module.models}
        seen = {name: has_weights(model) for name, model in models.items()}
        with open(f"{self.folder}/seen{trainer.global_rank}.json", "w") as file:
            json.dump(seen, file)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint with a value head that is not zero."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(1)
    policy = TextPolicy(config={"model_type": "llama", "tie_word_embeddings": True, **SIZES}, value_head=True)
    nn.init.normal_(policy.value_head.weight)
    policy.save_pretrained(folder)
    return folder


def test_only_the_first_process_loads_a_checkpoint(saved, tmp_path):
    teacher = f"{{_target_: mmrl.policies.text.policy.TextPolicy, path: '{saved}'}}"
    recipe = (
        *("policy=text", f"policy.path={saved}", "policy.lora={r: 2}", "policy.value_head=true", "policy.config=null"),
        *("model.reference=true", "data.pipeline=[reference, group_advantage]"),
        f"+model.frozen_models={{teacher: {teacher}}}",
        *("trainer.max_epochs=1", "trainer.callbacks.warm_start=null"),
        *("trainer.check_val_every_n_epoch=1", "optimizer.lr=3e-4"),
    )
    alone = fit(tmp_path / "alone", *recipe)
    seen = f"trainer.callbacks.seen={{_target_: {__name__}.Seen, folder: '{tmp_path}'}}"
    run_ranks(["fit", *words(tmp_path, *recipe, seen, "trainer.devices=2", "strategy=fsdp2")], tmp_path)
    first, second = (json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in range(2))
    assert first == dict.fromkeys(first, True) and len(first) >= 2
    assert second == dict.fromkeys(second, False) and second.keys() == first.keys()
    for rank in range(2):
        assert_close(record(tmp_path, rank)["weights"], alone["weights"], atol=2e-6, rtol=0)


@pytest.fixture
def mesh(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_weights_that_are_taken_and_received_are_equal(mesh):
    policy = TextPolicy(config={"model_type": "llama", "tie_word_embeddings": True, **SIZES})
    before = {name: value.clone() for name, value in [*policy.named_parameters(), *policy.named_buffers()]}
    count = sum(value.numel() for value in before.values())
    weights = take_weights(policy)
    assert not has_weights(policy)
    fully_shard(policy, mesh=mesh)
    receive_weights(policy, weights, "cpu")
    after = {name: whole(value) for name, value in [*policy.named_parameters(), *policy.named_buffers()]}
    assert_close(after, before, atol=0, rtol=0)
    assert sum(value.numel() for value in after.values()) == count  # the head is still tied to the embedding
    assert not weights


class Reads(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layer = nn.Linear(size, size)
        self.largest = self.layer.weight.abs().max().item()


class Keeps(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layer = nn.Linear(size, size)
        self.start = self.layer.weight.detach().clone()


@pytest.mark.parametrize("kind", [Reads, Keeps])
def test_a_module_that_needs_numbers_is_built_with_its_weights(kind):
    assert has_weights(build_without_weights(kind, {"size": 3}))


def test_an_error_of_a_constructor_is_not_hidden():
    with pytest.raises(TypeError, match="size"):
        build_without_weights(Keeps, {})
    with pytest.raises(ValueError, match=r"policy\.path"):
        build_without_weights(TextPolicy, {"path": "./absent"})


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID"])
def test_the_launcher_says_which_process_is_first(name, monkeypatch):
    for each in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(each, raising=False)
    assert is_first_process()
    monkeypatch.setenv(name, "0")
    assert is_first_process()
    monkeypatch.setenv(name, "3")
    assert not is_first_process()
