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

    uses_policy: bool = True
    """Whether it samples with the policy's own weights, which are then gathered; False where it has a copy."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}  # by metric name, since the last `report`

    @abstractmethod
    def sync(self, policy: Policy, version: int) -> None:
        """Make the engine sample from these weights; completions carry it as policy_version from now on."""

    @abstractmethod
    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]: ...

    def act(self, observation: Mapping[str, Any], seeds: Sequence[int], sampling: Sampling) -> Sequence[Completion]:
        """Sample one completion for each of n environments, from raw observations as arrays [n, ...] or lists.

        The result is a `mmrl.transitions.ActionBatch` if engine and policy support it. Row i draws from seeds[i] alone.
        """
        requests = [
            Request({name: rows[i] for name, rows in observation.items()}, int(seed)) for i, seed in enumerate(seeds)
        ]
        return self.sample(requests, sampling)

    def predict_values(self, observations: Sequence[Mapping[str, Any]]) -> list[float]:
        """Predict the values of raw observations; 0 where engine or policy has no value function."""
        return [0.0] * len(observations)

    def report(self) -> dict[str, float]:
        """Return this process's metrics since the last report, such as time/<phase>, and reset them."""
        spent, self.spent = self.spent, {}
        return spent

    def count(self, name: str, amount: float) -> None:
        """Add an amount to one metric of the report."""
        self.spent[name] = self.spent.get(name, 0.0) + amount

    def release_memory(self) -> None:
        """Release memory to the learner: nothing is sampled before the next `sync`."""

    def close(self) -> None:
        """Free what the engine holds: processes, ports, memory. It may be called twice, and after a failure."""


def distinct(requests: Sequence[Request]) -> tuple[list[Request], list[int]]:
    """Return one request per distinct context, and for each request the index of its context.

    Completions of a group have the same context while their tokens are equal.
    """
    owner = number_distinct(context_id(request) for request in requests)
    first: dict[int, Request] = {}
    for number, request in zip(owner, requests):
        first.setdefault(number, request)
    return list(first.values()), owner


def context_id(request: Request) -> Hashable | None:
    """Return the id of a request's context: prompt id and prefix tokens; None if it shares no context."""
    if request.prompt_id is None or request.prefix is None:
        return request.prompt_id
    return request.prompt_id, request.prefix.cpu().numpy().tobytes()


def contexts(requests: Sequence[Request], policy: Policy) -> list[Observation]:
    """Encode the contexts of requests; an observation that several requests share is encoded once."""
    encoded: dict[int, Observation] = {}
    out = []
    for number, request in zip(number_distinct(request.prompt_id for request in requests), requests):
        if number not in encoded:
            encoded[number] = policy.encode(request.observation)
        start = encoded[number]
        out.append(start if request.prefix is None else policy.extend(start, request.prefix))
    return out
