"""Who turns requests into completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mmrl.policies.base import Policy
from mmrl.types import Completion, Request, Sampling


class Engine(ABC):
    """Batches requests, runs the policy's weights on them, and returns one completion each, in order."""

    @abstractmethod
    def sync(self, policy: Policy, version: int) -> None:
        """Make the engine sample from these weights; completions carry `version` from now on."""

    @abstractmethod
    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]: ...
