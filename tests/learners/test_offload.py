"""Activations in host memory: the same gradient, weights stay, and a run on a CPU refuses the option."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.commands.plan import build_plan
from mmrl.commands.planning.planning import Given
from mmrl.core.types import Sampling
from mmrl.learners import offload
from mmrl.learners.offload import OffloadActivations
from mmrl.policies.text.policy import TextPolicy
from tests.commands.test_plan import WORDS
from tests.policies.text.oracle import TINY, batch_of, completions
from tests.policies.text.test_policy import PROMPTS
from tests.tiny_recipes import fit

POLICIES = {
    "plain": {},
    "adapters": {"lora": {"r": 4}},
    "checkpointing": {"gradient_checkpointing": True},
    "chunks": {"max_logits": 700},
}


@pytest.fixture
def copies(monkeypatch):
    """Copies that are made: here the device that is relieved is the CPU itself."""
    made = []
    monkeypatch.setattr(offload, "MIN_BYTES", 1)
    copy = offload._copy_to_host

    def count(tensor, pinned):
        assert not pinned
        made.append(tensor)
        return copy(tensor, pinned)

    monkeypatch.setattr(offload, "_copy_to_host", count)
    return made


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("mixed", [False, True], ids=["fp32", "bf16"])
def test_the_gradient_is_that_of_a_pass_without(name, mixed, copies):
    torch.manual_seed(0)
    policy = TextPolicy(config=dict(TINY), **POLICIES[name])
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, Sampling(max_tokens=9)))
    policy(batch)  # what is compared once is compared
    found = []
    for moved in (False, True):
        copies.clear()
        policy.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            if moved:
                with OffloadActivations("cpu"):
                    out = policy(batch)
            else:
                out = policy(batch)
        # what checkpointing computes again is not copied: that is counted before the backward pass
        weights = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
        assert bool(copies) == moved
        assert not any(tensor.untyped_storage().data_ptr() in weights for tensor in copies)
        (out.logprobs.sum() + out.entropy.square().sum()).backward()
        found.append({key: p.grad.clone() for key, p in policy.named_parameters() if p.requires_grad})
    assert_close(found[1], found[0], rtol=0, atol=0)


def test_small_tensors_and_other_devices_are_left(copies, monkeypatch):
    monkeypatch.setattr(offload, "MIN_BYTES", 401)
    layer, states = nn.Linear(10, 10), torch.randn(10, 10)  # 400 bytes
    with OffloadActivations("cpu"):
        layer(states).square().sum()
    assert not copies
    monkeypatch.setattr(offload, "MIN_BYTES", 1)
    with OffloadActivations("cuda"):
        layer(states).square().sum()
    assert not copies


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_holds_less_between_forward_and_backward():
    """24 layers that each save 4 MiB: most of it is in host memory until the backward pass, with the same gradient."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(24))).to("cuda")
    states, held, found = torch.randn(4096, 256, device="cuda"), [], []
    layers(states).sum().backward()  # workspaces of cuBLAS
    for moved in (False, True):
        layers.zero_grad()
        with OffloadActivations("cuda") if moved else nullcontext():
            out = layers(states).square().sum()
        held.append(torch.cuda.memory_allocated())
        out.backward()
        found.append([parameter.grad.clone() for parameter in layers.parameters()])
    assert held[0] - held[1] > 20 * states.nbytes
    assert_close(found[1], found[0], rtol=0, atol=0)


def test_a_run_on_a_cpu_refuses_it(tmp_path):
    with pytest.raises(ValueError, match=r"model\.offload_activations=true moves activations from a GPU"):
        fit(tmp_path, "model.offload_activations=true", "trainer.max_epochs=1")
    with pytest.raises(ValueError, match="computes on the CPU"):
        build_plan([*WORDS, "model.offload_activations=true"], Given(trace=False))


def test_a_plan_moves_them_to_the_host():
    words = [word for word in WORDS if "accelerator" not in word]
    device, host = (
        build_plan([*words, *more], Given(memory=10**9, prompt_tokens=64))
        for more in ([], ["model.offload_activations=true"])
    )
    moved = device.without_checkpointing.activations
    assert moved > 0 and "activations" not in host.ranks[0].phases["learn"]
    assert host.ranks[0].host - device.ranks[0].host == moved
    sums = [sum(made.ranks[0].phases["learn"].values()) for made in (device, host)]
    assert sums[0] - sums[1] == moved
