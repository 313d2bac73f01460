"""Low-rank adapter factors, from files or from memory, which vLLM's workers merge into the base weights.

vLLM decodes with merged weights, as fast as without adapters. This module is imported inside vLLM, in an environment
that may lack mmrl's other dependencies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

A, B = ".lora_A", ".lora_B"
Factors = tuple[Tensor, Tensor, float]  # A [r, in], B [out, r], scale


def merge_factors(weight: Tensor, factors: Factors) -> Tensor:
    """Merge low-rank factors into a weight: weight + scale * B A, [out, in] in the weight's dtype.

    Computed in float64, so that different orders of multiplication round to the same result.
    """
    a, b, scale = factors
    return (weight.double() + scale * (b.double() @ a.double())).to(weight.dtype)


def write_factors(pairs: Mapping[str, Factors], base: Path, path: Path) -> None:
    """Write a file with the factors of the named tensors and the path of the base's folder."""
    tensors = {}
    for name, (a, b, _) in pairs.items():
        tensors[name + A], tensors[name + B] = a.detach().contiguous(), b.detach().contiguous()
    scales = json.dumps({name: scale for name, (_, _, scale) in pairs.items()})
    save_file(tensors, path, metadata={"base": str(base.absolute()), "scales": scales})


def read_factors(path: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return the factors of a file, by name, and their scales."""
    with safe_open(path, "pt") as file:
        scales = json.loads((file.metadata() or {}).get("scales", "{}"))
        return {name: file.get_tensor(name) for name in file.keys()}, scales  # noqa: SIM118


class Weights:
    """Tensors of a safetensors file, of a folder of them, or of factors merged with their base.

    Args:
        path: file or folder.
        device: device of the tensors.
        factors: in memory and on the device, to be merged with the weights at `path`.
        scales: of the factors.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        factors: Mapping[str, Tensor] | None = None,
        scales: Mapping[str, float] | None = None,
    ):
        self._stack = ExitStack()
        if factors is not None:
            self._own: dict[str, Any] = {name: _InMemory(tensor) for name, tensor in factors.items()}
            self._scales = dict(scales or {})
            self._base: Weights | None = self._stack.enter_context(Weights(path, device))
            return
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        opened = [self._stack.enter_context(safe_open(file, "pt", device=device)) for file in files]
        about = opened[0].metadata() or {} if len(opened) == 1 else {}
        self._scales = json.loads(about.get("scales", "{}"))
        self._own = {name: file for file in opened for name in file.keys()}  # noqa: SIM118
        self._base = None
        if "base" in about:
            self._base = self._stack.enter_context(Weights(Path(about["base"]), device))

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._own if self._base is None else self._base)

    def problems(self) -> list[str]:
        """List the mismatches between factors and base; empty if they fit."""
        if self._base is None:
            return []
        names = {name + end for name in self._scales for end in (A, B)}
        out = [f"{name} was not sent" for name in sorted(names - set(self._own))]
        out += [f"{name} is no factor of a tensor of the base" for name in sorted(set(self._own) - names)]
        for name in self._scales:
            if not {name + A, name + B} <= set(self._own):
                continue
            a, b = (self._own[name + end].get_slice(name + end).get_shape() for end in (A, B))
            shape = self._base.shape(name) if name in self._base else None
            if shape != [b[0], a[1]] or a[0] != b[1]:
                out.append(f"{name} of the base is {shape}, and its factors are {a} and {b}")
        return out

    def shape(self, name: str) -> list[int]:
        return list(self._piece(name).get_shape())

    def dtype(self, name: str) -> torch.dtype:
        return _DTYPES[self._piece(name).get_dtype()]

    def tensor(self, name: str) -> Tensor:
        if self._base is None:
            return self._own[name].get_tensor(name)
        weight = self._base.tensor(name)
        if name not in self._scales:
            return weight
        a, b = (self._own[name + end].get_tensor(name + end) for end in (A, B))
        return merge_factors(weight, (a, b, self._scales[name]))

    def _piece(self, name: str) -> Any:
        return self._own[name].get_slice(name) if self._base is None else self._base._piece(name)


class _InMemory:
    """Tensor in the place of an open file that has it."""

    def __init__(self, tensor: Tensor):
        self._tensor = tensor

    def get_tensor(self, _: str) -> Tensor:
        return self._tensor

    def get_slice(self, _: str) -> _InMemory:
        return self

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
