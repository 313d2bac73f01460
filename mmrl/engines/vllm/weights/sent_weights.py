"""Fingerprints of the tensors that were sent to an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from mmrl.engines.vllm.weights.fingerprint import Fingerprint, fingerprint


class SentWeights:
    """Fingerprints of sent tensors by name and by the dtype that the engine holds them in.

    Args:
        tensors: kept, and fingerprinted when they are asked for. Tensors that do not stay are given to `record`.
    """

    def __init__(self, tensors: Mapping[str, Tensor] | None = None):
        self._tensors = dict(tensors or {})
        self._found: dict[tuple[str, str], tuple[Fingerprint, int]] = {}
        self._names = set(self._tensors)
        self.dtypes = {name_dtype(tensor) for tensor in self._tensors.values()}

    def record(self, tensors: Mapping[str, Tensor], dtypes: Iterable[str]) -> None:
        """Fingerprint tensors in each of the dtypes, and forget them."""
        for name, tensor in tensors.items():
            self._names.add(name)
            self.dtypes.add(name_dtype(tensor))
            for dtype in dtypes:
                self._found[name, dtype] = _measure(tensor, dtype)

    def fix(self, dtypes: Iterable[str]) -> SentWeights:
        """Return the fingerprints in these dtypes, without the tensors: small, for other ranks."""
        fixed = SentWeights()
        fixed.record(self._tensors, dtypes)
        return fixed

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def fingerprint(self, name: str, dtype: str) -> tuple[Fingerprint, int]:
        """Return the fingerprint of a tensor in a dtype, and its number of elements."""
        if (name, dtype) not in self._found:
            self._found[name, dtype] = _measure(self._tensors[name], dtype)
        return self._found[name, dtype]


def name_dtype(tensor: Tensor) -> str:
    """Return a tensor's dtype as torch names it."""
    return str(tensor.dtype).removeprefix("torch.")


def _measure(tensor: Tensor, dtype: str) -> tuple[Fingerprint, int]:
    return fingerprint(tensor.to(getattr(torch, dtype))), tensor.numel()
