"""Weights by a formula, for numbers that another library computed once."""

import math

import torch
from torch import nn


@torch.no_grad()
def fill_by_formula(module: nn.Module) -> None:
    """Set every weight to a sine of its place, small enough that activations stay of order one."""
    for number, (_, weight) in enumerate(sorted(module.named_parameters())):
        fan_in = math.prod(weight.shape[1:])
        place = torch.arange(weight.numel(), dtype=torch.float64)
        values = (
            torch.sin(0.7 * place + number) * math.sqrt(2 / fan_in)
            if weight.dim() > 1
            else 1 + 0.2 * torch.sin(place + number)
        )
        weight.copy_(values.reshape(weight.shape))
