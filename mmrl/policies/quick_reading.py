"""TracedEncoder: replay a captured context encoder at small batch sizes, which reduces control latency."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor, nn

from mmrl.recorded import CapturedGraph

MAX_CONTEXTS = 4  # contexts; with more the arithmetic takes longer than the Python code around it
MIN_CALLS = 64  # calls with the same weights before capture, which takes as long as some hundred of them


class TracedEncoder:
    """Replays a captured context encoder for a few contexts on a CPU while the weights stay as they are.

    Between two updates of training a small batch is encoded a few times at most: then nothing is captured. Whenever a
    weight has changed the network itself encodes, and the graph is compared with it again before it is used.
    """

    def __init__(self) -> None:
        self._captured = CapturedGraph("the encoder of contexts", min_calls=0)
        self._weights: list[Tensor] = []
        self._whole = True  # a shard of a weight has no place in memory that tells about it
        self._places: list[int] = []
        self._versions: list[int] = []
        self._calls = 0  # since the weights changed

    def __deepcopy__(self, memo: dict) -> TracedEncoder:
        return TracedEncoder()

    def __reduce__(self) -> tuple:
        return TracedEncoder, ()

    def __call__(
        self,
        policy: nn.Module,
        read: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
        observation: Mapping[str, Tensor],
        key: Hashable,
    ) -> dict[str, Tensor]:
        """What `read` gives for an observation, by name.

        Args:
            policy: whose weights `read` uses.
            read: tensor operations that follow from shapes and the key.
            observation: the contexts.
            key: what else the operations depend on.
        """
        some = next(iter(observation.values()))
        small = len(some) <= MAX_CONTEXTS and some.device.type == "cpu" and not torch.is_grad_enabled()
        if not (small and self._weights_unchanged(policy)):
            return read(observation)
        return self._captured(read, observation, (key, policy.training, torch.is_autocast_enabled("cpu")))

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
            self._captured = CapturedGraph(self._captured.what, min_calls=0)
        if places != self._places or versions != self._versions:
            self._places, self._versions, self._calls = places, versions, 1
            self._captured.revalidate()
        return self._calls > MIN_CALLS
