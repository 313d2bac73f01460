"""CapturedContexts: replay the encoder of a policy's contexts at small batch sizes, which reduces control latency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.capture.graph import CapturedGraph
from mmrl.capture.tracing import Tensors
from mmrl.core.batch import add_prefix, strip_prefix
from mmrl.policies.vla.chain import EncodedContext

MAX_CONTEXTS = 4  # contexts; with more the arithmetic takes longer than the Python code around it
MIN_CALLS = 64  # calls with the same weights before capture, which takes as long as some hundred of them


class CapturedContexts:
    """Replays a policy's `encode_context` for a few contexts on a CPU while the weights stay as they are.

    Between two updates of training a small batch is encoded a few times at most: then nothing is captured. Whenever a
    weight has changed the network itself encodes, and the graph is compared with it again before it is used.
    """

    def __init__(self) -> None:
        self.graph = CapturedGraph("the encoder of contexts", min_calls=0)
        self._weights: list[Tensor] = []
        self._whole = True  # a shard of a weight has no place in memory that tells about it
        self._places: list[int] = []
        self._versions: list[int] = []
        self._calls = 0  # since the weights changed

    def __deepcopy__(self, memo: dict) -> CapturedContexts:
        return CapturedContexts()

    def __reduce__(self) -> tuple:
        return CapturedContexts, ()

    def __call__(self, policy: Any, observation: Mapping[str, Tensor]) -> EncodedContext:
        """Return the result of `policy.encode_context`."""
        some = next(iter(observation.values()))
        small = len(some) <= MAX_CONTEXTS and some.device.type == "cpu" and not torch.is_grad_enabled()
        if not (small and self._weights_unchanged(policy)):
            return policy.encode_context(observation)
        complete = policy.is_complete(observation)
        key = complete, policy.training, torch.is_autocast_enabled("cpu")
        return _build(self.graph(lambda inputs: _name_parts(policy.encode_context(inputs, complete)), observation, key))

    def _weights_unchanged(self, policy: nn.Module) -> bool:
        """Whether the weights have been the same for long enough."""
        self._calls += 1
        if self._calls % MIN_CALLS == 1:  # looking for them takes long, and they are seldom others
            self._weights = [*policy.parameters(), *policy.buffers()]
            self._whole = all(type(weight) in (Tensor, nn.Parameter) for weight in self._weights)
        if not self._whole:
            return False
        places = [weight.data_ptr() for weight in self._weights]
        versions = [weight._version for weight in self._weights]
        if places != self._places:
            self.graph = CapturedGraph(self.graph.what, min_calls=0)
        if places != self._places or versions != self._versions:
            self._places, self._versions, self._calls = places, versions, 1
            self.graph.revalidate()
        return self._calls > MIN_CALLS


def _name_parts(encoded: EncodedContext) -> Tensors:
    """All tensors of encoded contexts by name."""
    values = {} if encoded.values is None else {"values": encoded.values}
    prefix = {str(k): part for k, part in enumerate(encoded.prefix)}
    fields = {"prefix": prefix, "cached_features": encoded.cached_features, "extra": encoded.extra}
    return values | {full: part for name, parts in fields.items() for full, part in add_prefix(name, parts).items()}


def _build(parts: Tensors) -> EncodedContext:
    """Encoded contexts from their named tensors: the inverse of `_name_parts`."""
    prefix = tuple(strip_prefix("prefix", parts).values())
    return EncodedContext(
        prefix, parts.get("values"), strip_prefix("cached_features", parts), strip_prefix("extra", parts)
    )
