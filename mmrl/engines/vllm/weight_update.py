"""Weight updates for an engine: full weights, or the factors of low-rank adapters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from mmrl.engines.vllm.factors import merge_factors, write_factors


class WeightTransfer(ABC):
    """How a policy's weights are transferred."""

    @abstractmethod
    def save(self, policy: Any, folder: Path) -> Mapping[str, Tensor] | None:
        """Write the checkpoint that an engine starts from. What it then holds, by the checkpoint's names, or None where
        that is not yet the policy."""

    @abstractmethod
    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        """Write to the file `path` what brings an engine that started from `start` up to date. What it then holds."""


class FullWeights(WeightTransfer):
    """Transfer all weights, with adapters merged."""

    def save(self, policy: Any, folder: Path) -> Mapping[str, Tensor]:
        policy.save_pretrained(folder)
        return policy.export_weights()

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        exported = policy.export_weights()
        seen: set[int] = set()
        plain = {}
        for name, tensor in exported.items():  # a file holds no two names for the same memory
            twice = tensor.data_ptr() in seen
            seen.add(tensor.data_ptr())
            plain[name] = tensor.detach().clone() if twice else tensor.detach().contiguous()
        save_file(plain, path)
        return exported


class AdapterFactors(WeightTransfer):
    """Transfer the factors of low-rank adapters; the base is transferred once."""

    def save(self, policy: Any, folder: Path) -> None:
        policy.adapters()  # refuses a policy whose base learns too
        policy.save_base(folder)

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        found = policy.adapters()
        write_factors(found.pairs, start, path)
        return found.base | {name: merge_factors(found.base[name], pair) for name, pair in found.pairs.items()}
