"""Weight updates for an engine: full weights, or the factors of low-rank adapters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from mmrl.engines.vllm.weights.factors import merge_factors, write_factors


class WeightTransfer(ABC):
    """Interface of weight transfers."""

    whole: bool  # whether all weights are sent, with adapters merged

    @abstractmethod
    def save(self, policy: Any, folder: Path) -> Mapping[str, Tensor] | None:
        """Write the initial checkpoint of an engine.

        Returns the tensors that the engine then holds, by the checkpoint's names, or None if they are not the policy's
        yet.
        """

    @abstractmethod
    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        """Write the update of an engine that started from `start` to `path`; return the tensors that it then holds."""


class FullWeights(WeightTransfer):
    """Transfer all weights, with adapters merged."""

    whole = True

    def save(self, policy: Any, folder: Path) -> Mapping[str, Tensor]:
        policy.save_pretrained(folder)
        return policy.export_weights()

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        exported = policy.export_weights()
        pointers: set[int] = set()
        plain = {}
        for name, tensor in exported.items():  # safetensors files cannot hold tied tensors
            twice = tensor.data_ptr() in pointers
            pointers.add(tensor.data_ptr())
            plain[name] = tensor.detach().clone() if twice else tensor.detach().contiguous()
        save_file(plain, path)
        return exported


class AdapterFactors(WeightTransfer):
    """Transfer the factors of low-rank adapters; the base is transferred once."""

    whole = False

    def save(self, policy: Any, folder: Path) -> None:
        policy.adapters()  # refuses a policy whose base weights are trained
        policy.save_base(folder)

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        adapters = policy.adapters()
        write_factors(adapters.pairs, start, path)
        return adapters.base | {name: merge_factors(adapters.base[name], pair) for name, pair in adapters.pairs.items()}
