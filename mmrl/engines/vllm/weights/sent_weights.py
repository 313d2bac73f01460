"""Fingerprints of the tensors that were sent to an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from mmrl.engines.vllm.weights.fingerprint import Fingerprint, fingerprint

LOG_DECAY, DECAY = ".A_log", "-exp"
"""Logarithms of the decay of state-space layers (Mamba), which vLLM stores as the decay, under the name A."""


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
        dtypes = list(dtypes)
        for name, tensor in tensors.items():
            self._names.add(name)
            self.dtypes.add(name_dtype(tensor))
            for dtype in dtypes:
                self._found[name, dtype] = _measure(tensor, dtype)
                if name.endswith(LOG_DECAY):
                    self._found[f"{DECAY}({name})", dtype] = _measure(compute_decay(tensor, dtype), dtype)

    def fix(self, dtypes: Iterable[str]) -> SentWeights:
        """Return the fingerprints in these dtypes, without the tensors: small, for other ranks."""
        fixed = SentWeights()
        fixed.record(self._tensors, dtypes)
        return fixed

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def fingerprint(self, name: str, dtype: str, decay: bool = False) -> tuple[Fingerprint, int]:
        """Return the fingerprint of a tensor in a dtype, and its number of elements.

        Args:
            decay: of what an engine holds of A_log in place of the tensor, -exp(A_log).
        """
        key = f"{DECAY}({name})" if decay else name, dtype
        if key not in self._found:
            tensor = self._tensors[name]
            self._found[key] = _measure(compute_decay(tensor, dtype) if decay else tensor, dtype)
        return self._found[key]


def compute_decay(tensor: Tensor, dtype: str) -> Tensor:
    """Compute the decay -exp(A_log) of a state-space layer, in float32 as vLLM's loader does."""
    return -tensor.to(getattr(torch, dtype)).float().exp()


def name_dtype(tensor: Tensor) -> str:
    """Return a tensor's dtype as torch names it."""
    return str(tensor.dtype).removeprefix("torch.")


def _measure(tensor: Tensor, dtype: str) -> tuple[Fingerprint, int]:
    return fingerprint(tensor.to(getattr(torch, dtype))), tensor.numel()
