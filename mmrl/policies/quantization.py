"""Frozen linear layers in 4 bits, below low-rank adapters (QLoRA); the arithmetic is bitsandbytes'."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmrl.core.installation.optional_packages import require_packages

BLOCK, NESTED_BLOCK = 64, 256
"""Weights that share a scale, and scales that share one of their own."""
STATISTICS = ("scales", "nested_scales", "nested_code", "offset")


class QuantizedLinear(nn.Linear):
    """Linear layer whose frozen weight is stored in 4 bits and dequantised in every pass, forward and backward.

    Blocks of 64 weights share a scale, the scales are quantised to 8 bits (double quantisation): 4.13 bits a weight.
    Rows are padded with zeros to whole blocks, because the kernels for CPUs read wrong scales for other rows.
    The layer of bitsandbytes is not used, because its state dictionary cannot be loaded into a quantised layer and on
    some processors evaluation changes the layout of its weights.
    Source: Dettmers et al., "QLoRA", 2023, section 3, arXiv:2305.14314.

    Args:
        linear: layer to quantise.
        kind: "nf4", quantiles of a normal distribution, or "fp4".
    """

    def __init__(self, linear: nn.Linear, kind: str):
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.kind = linear.in_features, linear.out_features, kind
        self.dtype = linear.weight.dtype
        codes, statistics = _quantize(pad(linear.weight.data, (0, self.padding)), kind)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.data, requires_grad=False)
        for name, tensor in zip(STATISTICS, statistics):
            # bytes, so that a conversion of the module to bfloat16 does not round them
            self.register_buffer(name, tensor.reshape(-1).contiguous().view(torch.uint8))

    @property
    def padding(self) -> int:
        """Zeros after each row, up to whole blocks."""
        return -self.in_features % BLOCK

    @property
    def state(self) -> Any:
        """The quantisation state of the weight, as bitsandbytes takes it."""
        from bitsandbytes.functional import QuantState, get_4bit_type

        scales, code, offset = (self.get_buffer(name).view(torch.float32) for name in STATISTICS[1:])
        nested = QuantState(absmax=scales, code=code, blocksize=NESTED_BLOCK, dtype=torch.float32)
        return QuantState(
            absmax=self.get_buffer("scales"),
            shape=torch.Size((self.out_features, self.in_features + self.padding)),
            dtype=self.dtype,
            blocksize=BLOCK,
            code=get_4bit_type(self.kind, device=self.weight.device),
            quant_type=self.kind,
            offset=offset[0],
            state2=nested,
        )

    def forward(self, input: Tensor) -> Tensor:
        from bitsandbytes import matmul_4bit

        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        return matmul_4bit(pad(input.to(dtype), (0, self.padding)), self.weight.t(), self.state, bias=bias)

    def dequantize(self) -> nn.Linear:
        """Return an ordinary layer with the dequantised weight."""
        from bitsandbytes.functional import dequantize_4bit

        weight = dequantize_4bit(self.weight.data, self.state)[:, : self.in_features].contiguous()
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        linear.bias = self.bias
        return linear


def _quantize(weight: Tensor, kind: str) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Quantise a weight to codes and the tensors of STATISTICS; on the meta device these have shapes alone."""
    if weight.is_meta:
        blocks = -(-weight.numel() // BLOCK)
        codes = weight.new_empty((weight.numel() + 1) // 2, 1, dtype=torch.uint8)
        floats = (weight.new_empty(size, dtype=torch.float32) for size in (-(-blocks // NESTED_BLOCK), 256, 1))
        return codes, (weight.new_empty(blocks, dtype=torch.uint8), *floats)
    from bitsandbytes.functional import quantize_4bit

    codes, state = quantize_4bit(weight, blocksize=BLOCK, compress_statistics=True, quant_type=kind)
    return codes, (state.absmax, state.state2.absmax, state.state2.code, state.offset)


def quantize_linears(model: Any, kind: str | None, trainable: bool) -> None:
    """Quantise the linear layers of a transformers model in place, except its output head.

    Args:
        model: to change.
        kind: of QuantizedLinear; None changes nothing.
        trainable: whether the weights themselves are to be trained, which 4 bits cannot be.

    Raises:
        ValueError: the weights are to be trained, or bitsandbytes is not installed.
    """
    if kind is None:
        return
    if trainable:
        raise ValueError(f"policy.quantization={kind} freezes the weights, so nothing learns: set policy.lora.r=16")
    require_packages(["bitsandbytes"], f"policy.quantization={kind}")
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(parent, name, QuantizedLinear(child, kind))


def dequantize_linears(model: nn.Module) -> Any:
    """Replace quantised layers of a model, in place, by ordinary ones."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, QuantizedLinear):
                setattr(parent, name, child.dequantize())
    return model
