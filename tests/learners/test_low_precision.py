"""Updates of trained bf16 and fp16 weights: which are lost to rounding, measured, and which runs are refused."""

import math

import pytest
import torch
from torch import nn

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.learners.low_precision import (
    changed_fraction,
    keeps_small_steps,
    refuse_lost_updates,
    smallest_effective_rate,
)
from tests.tiny_recipes import words

NORMAL = 0.02 * torch.randn(20_000, generator=torch.Generator().manual_seed(0))


def adamw(rate):
    return lambda parameters: torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)


def travelled(dtype, rate, steps=50):
    """Mean share of the distance steps * rate that weights go in `steps` steps of Adam in one direction."""
    weight = nn.Parameter(NORMAL.to(dtype))
    start, optimizer = weight.detach().float().clone(), adamw(rate)([weight])
    for _ in range(steps):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    moved = start - weight.detach().float()
    return float(moved.mean()) / (steps * rate), float((moved != 0).float().mean())


@pytest.mark.parametrize("dtype, bits", [(torch.bfloat16, 8), (torch.float16, 11)])
def test_the_bound_is_what_is_measured(dtype, bits):
    """A step is lost above |w| = 2^(bits + 1) lr, and never below 2^bits lr; the learning rate follows from that."""
    rate = 3e-6
    weights = NORMAL.to(dtype)
    moves = weights + rate != weights
    assert not moves[weights.abs() > 2 ** (bits + 1) * rate].any()
    assert moves[weights.abs() < 2**bits * rate].all()
    bound = 0.02 / 2**bits
    assert bound / 2 < smallest_effective_rate([weights], 1e-8) < bound * 1.2
    # in fp32 Adam goes the whole way; far below the bound next to nothing moves, and above it nearly everything
    assert travelled(torch.float32, bound / 64)[0] == pytest.approx(1, abs=0.02)
    distance, share = travelled(dtype, bound / 64)
    assert distance < 0.1 and share < 0.1 and share == pytest.approx(changed_fraction([weights], bound / 64), abs=0.02)
    assert travelled(dtype, 2 * bound)[1] > 0.9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rates_at_which_updates_vanish_are_refused(dtype):
    half = nn.Parameter(NORMAL.to(dtype))
    for rate in (1e-8, 1e-6):
        with pytest.raises(ValueError, match=r"policy\.dtype=float32 trainer\.precision=bf16-mixed") as error:
            refuse_lost_updates(adamw(rate)([half]), adamw(rate))
        assert f"optimizer.lr={rate:g} " in str(error.value) and len(str(error.value).splitlines()) <= 12
    refuse_lost_updates(adamw(2e-4)([half]), adamw(2e-4))


def test_fp32_and_fixed_weights_are_no_matter():
    whole, fixed = nn.Parameter(NORMAL), nn.Parameter(NORMAL.bfloat16(), requires_grad=False)
    refuse_lost_updates(adamw(1e-6)([whole]), adamw(1e-6))
    optimizer = torch.optim.AdamW([{"params": [whole]}, {"params": [fixed], "lr": 1e-7}], lr=1e-6)
    refuse_lost_updates(optimizer, adamw(1e-6))


def test_an_optimiser_that_keeps_what_rounding_loses_is_taken():
    optimi = pytest.importorskip("optimi", reason="pip install torch-optimi")
    half = nn.Parameter(NORMAL.bfloat16())
    make = lambda parameters: optimi.AdamW(parameters, lr=1e-6)  # noqa: E731
    refuse_lost_updates(make([half]), make)


class StochasticSGD(torch.optim.SGD):
    """Plain gradient descent that rounds up or down with the probabilities that keep the mean."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                exact = weight.float() - group["lr"] * weight.grad.float()
                noise = torch.randint(0, 1 << 16, exact.shape, dtype=torch.int32)
                weight.copy_(((exact.view(torch.int32) + noise) & -65536).view(torch.float32))


@pytest.mark.parametrize("rate", [1e-8, 1e-6, 1e-5])
def test_small_steps_are_recognised(rate):
    torch.manual_seed(0)
    assert keeps_small_steps(lambda parameters: StochasticSGD(parameters, lr=rate), torch.bfloat16, rate)
    assert not keeps_small_steps(adamw(rate), torch.bfloat16, rate)
    assert not keeps_small_steps(lambda parameters: torch.optim.SGD(parameters, lr=rate), torch.bfloat16, rate)


def test_a_run_is_refused_before_it_samples_and_adapters_are_taken(tmp_path):
    chosen = words(tmp_path, "trainer.max_epochs=1", "optimizer.lr=1e-6", "policy.dtype=bfloat16", "data.num_prompts=1")
    with pytest.raises(ValueError, match=r"optimizer\.lr=1e-06 is too small for weights that are trained in bfloat16"):
        CLI(to_lightning(compose(chosen))).fit()
    CLI(to_lightning(compose([*chosen, "policy.lora.r=2"]))).fit()


def test_significant_bits():
    assert [1 - round(math.log2(torch.finfo(dtype).eps)) for dtype in (torch.bfloat16, torch.float16)] == [8, 11]
