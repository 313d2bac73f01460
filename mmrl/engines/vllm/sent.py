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

    complete: bool  # whether an engine that has started from `save` holds the policy's weights already

    @abstractmethod
    def save(self, policy: Any, folder: Path) -> None:
        """The checkpoint that an engine starts from."""

    @abstractmethod
    def published(self, policy: Any) -> Mapping[str, Tensor]:
        """What an engine holds that is up to date, by the checkpoint's names."""

    @abstractmethod
    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        """What brings an engine that started from `start` up to date, to the file `path`; returns `published`."""


class Whole(Sent):
    """All weights, adapters folded in."""

    complete = True

    def save(self, policy: Any, folder: Path) -> None:
        policy.save_pretrained(folder)

    def published(self, policy: Any) -> Mapping[str, Tensor]:
        return policy.published()

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        published = self.published(policy)
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

    complete = False

    def save(self, policy: Any, folder: Path) -> None:
        policy.adapters()  # refuses a policy whose base learns too
        policy.save_base(folder)

    def published(self, policy: Any) -> Mapping[str, Tensor]:
        found = policy.adapters()
        return found.base | {name: folded(found.base[name], pair) for name, pair in found.pairs.items()}

    def write(self, policy: Any, start: Path, path: Path) -> Mapping[str, Tensor]:
        write_factors(policy.adapters().pairs, start, path)
        return self.published(policy)
