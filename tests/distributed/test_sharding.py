"""A reference shares the sharded layers below adapters with the policy."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing import assert_close

from mmrl.commands.planning.parameters import measure_module
from mmrl.distributed.fsdp2 import mixed_precision
from mmrl.distributed.sharding import collect_weights, gather_weights, shard
from mmrl.policies.base import copy_policy
from mmrl.policies.text.policy import TextPolicy

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
IDS = torch.arange(6).view(2, 3)


@pytest.fixture
def mesh(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


class Logits(TextPolicy):
    def forward(self, ids):
        return self.model(input_ids=ids).logits


def build() -> Logits:
    torch.manual_seed(0)
    return Logits(config={"model_type": "llama", "tie_word_embeddings": True, **SIZES}, lora={"r": 2})


def test_a_reference_shares_sharded_layers(mesh):
    policy = build()
    reference = copy_policy(policy).requires_grad_(False).eval()
    with torch.no_grad():
        expected = build()(IDS)
    shard(policy, mesh)
    shard(reference, mesh)
    own, frozen = dict(policy.named_parameters()), dict(reference.named_parameters())
    shared = {name for name in own if own[name] is frozen[name]}
    assert shared == {name for name in own if "lora" not in name}
    assert all(isinstance(parameter, DTensor) for parameter in (*own.values(), *frozen.values()))

    policy(IDS).square().mean().backward()
    for name, parameter in own.items():
        assert (parameter.grad is not None) == ("lora" in name)
    with torch.no_grad():
        for name in set(own) - shared:
            nn.init.constant_(own[name].to_local(), 0.1)
        with gather_weights(reference):
            assert_close(reference(IDS), expected)
        with gather_weights(policy, reference):
            assert_close(reference(IDS), expected)
            assert (policy(IDS) - expected).abs().max() > 1e-3
    policy(IDS).square().mean().backward()  # the order of hooks is undisturbed


def test_collected_weights_have_the_present_buffers(mesh):
    """As those that a resumed run has loaded from its checkpoint after the policy was sharded."""
    policy = build()
    policy.register_buffer("mean", torch.zeros(2))
    shard(policy, mesh)
    policy.mean.fill_(3.0)
    policy.register_buffer("mean", policy.mean + 1)
    with collect_weights(policy) as whole:
        assert_close(whole.mean, torch.full((2,), 4.0))


def test_mixed_precision_gathers_weights_in_16_bits(mesh):
    """The memory plan counts half the bytes of fp32 shards for them."""
    policy = build()
    shard(policy, mesh, mixed_precision("bf16-mixed"))
    with torch.no_grad(), gather_weights(policy):
        assert {parameter.dtype for parameter in policy.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert measure_module(policy).parameter_bytes == 4 * measure_module(policy).parameters


def test_layers_with_running_statistics_are_not_shared():
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2).requires_grad_(False)
            self.layer = nn.Linear(2, 2).requires_grad_(False)
            self.head = nn.Linear(2, 1)

    policy = Normalised()
    copied = copy_policy(policy)
    assert copied.layer is policy.layer and copied.head is not policy.head
    assert copied.norm is not policy.norm and copied.norm.weight is policy.norm.weight
