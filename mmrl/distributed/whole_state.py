"""Collect and load the state of sharded models and optimisers in the form of a run in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer


@torch.no_grad()
def load_model_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load whole weights, equal on all processes, into a sharded model."""
    for name, target in model.state_dict().items():
        target.copy_(shard_like(state[name], target))


def collect_optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return the state of a sharded optimiser on rank 0 as `Optimizer.state_dict` has it; empty elsewhere. Collective.

    torch names states by parameter; an optimiser of one process numbers its parameters in the order of its groups.
    """
    by_name = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if not by_name:
        return {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    numbers = {name: i for i, name in enumerate(order)}
    groups = [{**group, "params": [numbers[name] for name in group["params"]]} for group in by_name["param_groups"]]
    return {"state": {numbers[name]: state for name, state in by_name["state"].items()}, "param_groups": groups}


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a state of `Optimizer.state_dict`, equal on all processes, into a sharded optimiser."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shards = {
        number: {name: shard_like(value, parameters[number]) for name, value in one.items()}
        for number, one in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": shards})


def shard_like(value: Any, parameter: Tensor) -> Any:
    """Return this process's shard of a tensor of a parameter's shape; anything else, such as a number of steps, as is.

    Nothing is communicated.
    """
    if not (isinstance(parameter, DTensor) and isinstance(value, Tensor) and value.shape == parameter.shape):
        return value
    on_device = value.to(parameter.to_local().device)
    return distribute_tensor(on_device, parameter.device_mesh, parameter.placements, src_data_rank=None)


def collect_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return sharded tensors whole, in host memory on rank 0 and none elsewhere; others as they are. Collective."""
    whole = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, DTensor):
            whole[name] = tensor
            continue
        full = tensor.full_tensor()  # one at a time
        if torch.distributed.get_rank() == 0:
            whole[name] = full.cpu()
    return whole
