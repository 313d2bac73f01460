"""Engine: turns requests into completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from mmrl.groups import number_distinct
from mmrl.policies.base import Policy
from mmrl.types import Completion, Observation, Request, Sampling


class Engine(ABC):
    """Batches requests, runs the policy's weights on them, and returns one completion each, in order."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}  # by metric name, since the last `report`

    @abstractmethod
    def sync(self, policy: Policy, version: int) -> None:
        """Make the engine sample from these weights; completions carry it as policy_version from now on."""

    @abstractmethod
    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]: ...

    def act(self, observation: Mapping[str, Any], seeds: Sequence[int], sampling: Sampling) -> Sequence[Completion]:
        """One completion for each of n environments, from raw observations as arrays [n, ...] or lists.

        Where the engine and its policy can, they are rows of a `mmrl.transitions.ActionBatch`.
        Row i draws from seeds[i] alone.
        """
        requests = [
            Request({name: rows[i] for name, rows in observation.items()}, int(seed)) for i, seed in enumerate(seeds)
        ]
        return self.sample(requests, sampling)

    def report(self) -> dict[str, float]:
        """Metrics of this process since the last report: time/<phase> and the like. Starts again from zero."""
        spent, self.spent = self.spent, {}
        return spent

    def count(self, name: str, amount: float) -> None:
        """Add to one entry of the report."""
        self.spent[name] = self.spent.get(name, 0.0) + amount

    def release_memory(self) -> None:
        """Release memory to the learner: nothing is sampled before the next `sync`."""

    def close(self) -> None:
        """Free what the engine holds: processes, ports, memory. It may be called twice, and after a failure."""


def distinct(requests: Sequence[Request]) -> tuple[list[Request], list[int]]:
    """A request of each context; and whose number is each request's.

    The completions of a group share their prompt, and what follows it as long as their tokens are equal.
    """
    owner = number_distinct(context_id(request) for request in requests)
    first: dict[int, Request] = {}
    for number, request in zip(owner, requests):
        first.setdefault(number, request)
    return list(first.values()), owner


def context_id(request: Request) -> Hashable | None:
    """The prompt id of a completion: of the observation and what stands after it; None for one of its own."""
    if request.prompt_id is None or request.prefix is None:
        return request.prompt_id
    return request.prompt_id, request.prefix.cpu().numpy().tobytes()


def contexts(requests: Sequence[Request], policy: Policy) -> list[Observation]:
    """What the policy is run on; an observation that several requests go on from is encoded once."""
    encoded: dict[int, Observation] = {}
    out = []
    for number, request in zip(number_distinct(request.prompt_id for request in requests), requests):
        if number not in encoded:
            encoded[number] = policy.encode(request.observation)
        start = encoded[number]
        out.append(start if request.prefix is None else policy.extend(start, request.prefix))
    return out
