"""Reading contexts without the Python of the network: what a robot that decides alone waits for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor, nn

from mmrl.recorded import Recorded

FEW = 4  # contexts; with more the arithmetic takes longer than the Python around it
SETTLED = 64  # reads with the same weights before they are recorded, which takes as long as some hundred of them


class QuickReading:
    """Replays the reading of a few contexts on a CPU while the weights stay as they are.

    Between two updates of training a small batch is read a few times at most: there nothing is recorded. Whenever a
    weight has changed the network itself reads, and after that a record is compared with it before it is believed.
    """

    def __init__(self) -> None:
        self._recorded = Recorded("the reading of contexts", pays=0)
        self._weights: list[Tensor] = []
        self._whole = True  # a shard of a weight has no place in memory that tells about it
        self._places: list[int] = []
        self._versions: list[int] = []
        self._calls = 0  # since the weights changed

    def __deepcopy__(self, memo: dict) -> QuickReading:
        return QuickReading()

    def __reduce__(self) -> tuple:
        return QuickReading, ()

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
        alone = len(some) <= FEW and some.device.type == "cpu" and not torch.is_grad_enabled()
        if not (alone and self._settled(policy)):
            return read(observation)
        return self._recorded(read, observation, (key, policy.training, torch.is_autocast_enabled("cpu")))

    def _settled(self, policy: nn.Module) -> bool:
        """Whether the weights have been the same for long enough."""
        self._calls += 1
        if self._calls % SETTLED == 1:  # looking for them takes long, and they are seldom others
            self._weights = [*policy.parameters(), *policy.buffers()]
            self._whole = all(type(weight) in (Tensor, nn.Parameter) for weight in self._weights)
        if not self._whole:
            return False
        places = [weight.data_ptr() for weight in self._weights]
        versions = [weight._version for weight in self._weights]
        if places != self._places:
            self._recorded = Recorded(self._recorded.what, pays=0)
        if places != self._places or versions != self._versions:
            self._places, self._versions, self._calls = places, versions, 1
            self._recorded.doubt()
        return self._calls > SETTLED
