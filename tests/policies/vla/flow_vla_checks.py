"""Checks that the tests of every flow VLA make: gradients, cloning, adapters and half precision."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.testing import assert_close

from mmrl.objectives.imitation_chain import DenoisingLoss
from mmrl.policies.vla.pretrained.flow.policy import FlowVLAPolicy
from tests.laws.heads import demonstrated, sampled


def gradients(policy, loss) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def touched(policy, loss) -> set[str]:
    return {name for name, slope in gradients(policy, loss).items() if slope.abs().sum() > 0}


def check_open_parameters(policy: FlowVLAPolicy) -> set[str]:
    """Log-probs and values together reach every open parameter, with a std head and a shared critic; their names."""
    torch.nn.init.normal_(policy.log_std.weight)
    out = policy(sampled(policy))
    open_names = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert set(gradients(policy, out.logprobs.sum() + out.values.sum())) == open_names
    return open_names


def check_equal_gradients(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Checkpointed and stored activations give the same gradients."""
    assert one.keys() == other.keys() and one
    for name, slope in one.items():
        assert_close(slope, other[name], rtol=1e-4, atol=1e-5)


def check_adapters(build: Callable[..., FlowVLAPolicy], frozen: str, folder: Path) -> None:
    """Adapters alone are trained, none of them in modules with `frozen` in their name, and exports have them merged."""
    policy = build(freeze_context=True, lora={"r": 4})
    names = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert names and all("lora_" in name for name in names) and not any(frozen in name for name in names)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    policy.eval().save_pretrained(folder)
    first, other = sampled(policy), sampled(build(path=str(folder)).eval())
    assert_close(first["action"], other["action"], atol=1e-4, rtol=0)
    assert (first["action"] - sampled(build().eval())["action"]).abs().max() > 1e-2


def check_half_precision(policy: FlowVLAPolicy) -> None:
    """Weights in bfloat16 score what they sampled, as float32 actions."""
    batch = sampled(policy.eval())
    assert policy.network.dtype == torch.bfloat16 and batch["action"].dtype == torch.float32
    assert (policy(batch).logprobs - batch["behavior_logprobs"]).abs().max() < 0.1


def check_cloning(policy: FlowVLAPolicy) -> None:
    """60 steps on four demonstrated chunks at least halve the error."""
    policy.train()
    chunk = np.random.default_rng(1).uniform(-0.8, 0.8, (4, 5, 3)).astype(np.float32)
    batch = demonstrated(policy, chunk)
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=3e-3)
    errors = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = DenoisingLoss()(policy(batch), batch).mean()
        loss.backward()
        optimizer.step()
        errors.append(float(loss.detach()))
    assert errors[-1] < 0.5 * errors[0]
