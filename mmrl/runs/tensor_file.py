"""Write tensors in the safetensors format one after the other, so that no second copy of them is held in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Dtypes that can be written, and their names in the format."""


def write_tensors(file: Any, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to an open file, as `safetensors.torch.save` lays them out; one of them is copied at a time.

    Source: the format's description in the README of huggingface/safetensors.

    Args:
        file: has `write`.
        tensors: dense tensors of dtypes in DTYPES, on any device. They may share memory.
        metadata: texts of the header's entry `__metadata__`.
    """
    # wide dtypes first, so that each tensor begins at a multiple of its item's size
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        file.write(tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
