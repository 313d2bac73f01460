"""Refuse learning rates whose steps are lost by rounding in trained bf16 or fp16 weights.

A bf16 number w with 2^e <= |w| < 2^(e+1) has 8 significant bits, so its neighbours are 2^(e-7) away, and a sum is
rounded to the nearest of them: w + u = w for every |u| < 2^(e-8). A step of Adam has about the size of the learning
rate, hence it is lost wherever |w| > 2^9 lr, and never where |w| < 2^8 lr. Weights of standard deviation 0.02 lie
within 0.02 for two thirds, so that a learning rate has to be about 0.02 / 2^8 = 8e-5 for two thirds of them to move;
at 1e-6, 98 % never change. fp16 has 11 significant bits: there it is 0.02 / 2^11 = 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

LOW = (torch.bfloat16, torch.float16)
SHARE = 2 / 3  # fraction of the weights that a step has to change: those within one standard deviation
LOOKED_AT = 1 << 20  # entries checked per parameter
STEPS = 64  # steps of an eighth of the spacing between representable numbers


def refuse_lost_updates(optimizer: Optimizer, make: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    """Raise if a step of the learning rate changes too few of the trained bf16 or fp16 weights.

    An optimiser that keeps what rounding loses (fp32 master weights, Kahan summation, stochastic rounding) passes at
    any learning rate: it is recognised by 64 steps on a few numbers.

    Args:
        optimizer: of the run, with the learning rate that a schedule multiplies.
        make: makes such an optimiser for other parameters.
    """
    for group in optimizer.param_groups:
        rate = float(group["lr"])
        for dtype in LOW:
            # a sample of each trained tensor's entries is enough for a fraction
            weights = [_numbers(p) for p in group["params"] if p.dtype == dtype and p.requires_grad]
            if (
                not weights
                or rate <= 0
                or changed_fraction(weights, rate) >= SHARE
                or keeps_small_steps(make, dtype, rate)
            ):
                continue
            # bits of the significand, 8 for bfloat16 and 11 for float16
            name, bits = str(dtype).removeprefix("torch."), 1 - round(math.log2(torch.finfo(dtype).eps))
            raise ValueError(
                f"optimizer.lr={rate:g} is too small for weights that are trained in {name}: they keep {bits} bits, so "
                f"a step of that size changes only {changed_fraction(weights, rate):.1%} of them (two thirds from lr "
                f"{smallest_effective_rate(weights, rate):.0e} on). Give one of:\n"
                "  policy.dtype=float32 trainer.precision=bf16-mixed    fp32 weights, bf16 arithmetic\n"
                "  policy.lora.r=16                                     the weights stay fixed, fp32 adapters learn\n"
                "  optimizer._target_=optimi.AdamW                      keeps what rounding loses (pip install "
                "torch-optimi)"
            )


def changed_fraction(weights: list[Tensor], step: float) -> float:
    """Fraction of the entries that change when `step` is added and the sum is rounded to their dtype."""
    changed = sum(int((part + step != part).sum()) for part in weights)
    return changed / max(sum(part.numel() for part in weights), 1)


def smallest_effective_rate(weights: list[Tensor], rate: float) -> float:
    """Smallest of rate, 1.1 rate, 1.21 rate, ... whose step changes enough of the weights."""
    while changed_fraction(weights, rate) < SHARE:
        rate *= 1.1
    return rate


def keeps_small_steps(make: Callable[[list[nn.Parameter]], Optimizer], dtype: torch.dtype, rate: float) -> bool:
    """Whether the optimiser accumulates steps that are smaller than the spacing of the dtype."""
    spacing = 8 * rate / torch.finfo(dtype).eps
    start = 1.5 * 2.0 ** math.ceil(math.log2(spacing))  # halfway between two powers of two
    if start > torch.finfo(dtype).max / 2:
        return False
    weight = nn.Parameter(torch.full((8, 8), start, dtype=dtype))
    optimizer = make([weight])
    for group in optimizer.param_groups:
        group["lr"] = rate
    for _ in range(STEPS):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    return float((start - weight.detach().float()).mean()) > STEPS * rate / 2


def _numbers(parameter: nn.Parameter) -> Tensor:
    """At most LOOKED_AT evenly spaced entries of the local part of a tensor."""
    local = parameter.detach()
    local = local.to_local() if hasattr(local, "to_local") else local
    flat = local.flatten()
    return flat[:: max(flat.numel() // LOOKED_AT, 1)]
