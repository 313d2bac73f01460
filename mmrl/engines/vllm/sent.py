"""What an engine is sent after a step of learning: all weights, or the factors of low-rank adapters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from mmrl.engines.vllm.factors import folded, write_factors


class Sent(ABC):
    """How a policy's weights travel."""

    @abstractmethod
    def save(self, policy: Any, folder: Path) -> Mapping[str, Tensor] | None:
        """Write the checkpoint that an engine starts from. What it then holds, by the checkpoint's names, or None where
        that is not yet the policy."""

    @abstractmethod
    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        """Write to the file `path` what brings an engine that started from `start` up to date. What it then holds."""


class Whole(Sent):
    """All weights, adapters folded in."""

    def save(self, policy: Any, folder: Path) -> Mapping[str, Tensor]:
        policy.save_pretrained(folder)
        return policy.published()

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        published = policy.published()
        seen: set[int] = set()
        plain = {}
        for name, tensor in published.items():  # a file holds no two names for the same memory
            twice = tensor.data_ptr() in seen
            seen.add(tensor.data_ptr())
            plain[name] = tensor.detach().clone() if twice else tensor.detach().contiguous()
        save_file(plain, path)
        return published


class Factored(Sent):
    """The factors of low-rank adapters; the base is sent once."""

    def save(self, policy: Any, folder: Path) -> None:
        policy.adapters()  # refuses a policy whose base learns too
        policy.save_base(folder)

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        found = policy.adapters()
        write_factors(found.pairs, start, path)
        return found.base | {name: folded(found.base[name], pair) for name, pair in found.pairs.items()}
