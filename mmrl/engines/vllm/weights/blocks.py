"""Weights of a policy as blocks of tensors, which an engine in the same process loads one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mmrl.distributed.sharding import gather_blocks, without_weights


class WeightBlocks:
    """Iterator over {name: tensor}, by the checkpoint's names, with adapters merged. Collective for sharded policies.

    Of a sharded policy one block at a time is whole. Every rank must iterate to the end, see `drain`.

    Args:
        policy: a text or vision-language policy.
    """

    def __init__(self, policy: Any):
        plain = without_weights(policy)
        exported = plain.export_weights()
        self.headers: dict[str, Tensor] = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for name, tensor in exported.items()
        }
        self._blocks = self._gather(policy) if plain is not policy else iter([exported])

    def __iter__(self) -> WeightBlocks:
        return self

    def __next__(self) -> dict[str, Tensor]:
        return next(self._blocks)

    def drain(self) -> None:
        """Iterate to the end, which other ranks wait for."""
        for _ in self._blocks:
            pass

    def _gather(self, policy: Any) -> Iterator[dict[str, Tensor]]:
        names: set[str] = set()
        for plain in gather_blocks(policy):
            whole = {
                name: tensor.detach()
                for name, tensor in plain.export_weights().items()
                if tensor.device.type != "meta" and name not in names
            }
            names |= set(whole)
            yield whole
        if missing := [name for name in self.headers if name not in names]:
            raise ValueError(f"{missing[0]} of the policy is made of weights of several blocks; use engine=vllm_server")
