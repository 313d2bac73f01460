"""Engine: turns requests into completions, of the policy and of frozen models that are sampled beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch

from mmrl.core.errors import ConfigError
from mmrl.core.groups import number_distinct
from mmrl.core.types import Completion, Observation, Prompt, Request, Sampling
from mmrl.distributed import parallel
from mmrl.policies.base import Policy


class Engine(ABC):
    """Batches requests, runs the policy's weights on them, and returns one completion each, in order.

    A request may name a frozen model, which then answers in the place of the policy. Each has an engine of its own,
    gets its weights once, and no version: `sync` is for the policy alone.
    """

    uses_policy: bool = True
    """Whether it samples with the policy's own weights, which are then gathered; False where it has a copy."""

    thread_obstacle: str | None = None
    """Why it cannot sample in a thread beside the learner in several processes; None where it can."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}  # amounts by metric name, since the last `report`
        self.measured: dict[str, float] = {}  # other metrics, such as a size, of the last measurement since then
        self.engines: dict[str, Engine] = {}  # of the frozen models that are loaded, by name

    def check_models(self, names: Iterable[str]) -> None:
        """Refuse names of frozen models that this engine cannot sample from."""
        for name in names:
            self.build_engine(name)

    def build_engine(self, name: str) -> Engine:
        """Build the engine of a frozen model, without weights."""
        raise ConfigError(
            f"{type(self).__name__} samples the policy alone, and a part of data asks for the model {name!r}; use "
            f"engine=local, or engine=vllm_server with engine.models.{name}.servers=1"
        )

    def load_models(self, models: Mapping[str, Policy]) -> None:
        """Load frozen models, by name; one that is loaded is kept as it is. Collective."""
        for name, model in models.items():
            if name not in self.engines:
                self.engines[name] = self.build_engine(name)  # `close` ends it, also if the weights do not arrive
                self.engines[name].sync(model, 0)

    @abstractmethod
    def sync(self, policy: Policy, version: int) -> None:
        """Make the engine sample from these weights; completions carry it as policy_version from now on."""

    @abstractmethod
    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Return one completion for each request, in order; those of frozen models are no choices of the policy."""

    def act(self, observation: Mapping[str, Any], seeds: Sequence[int], sampling: Sampling) -> Sequence[Completion]:
        """Sample one completion for each of n environments, from raw observations as arrays [n, ...] or lists.

        The result is a `mmrl.core.transitions.ActionBatch` if engine and policy support it. Row i draws from seeds[i]
        alone.
        """
        requests = [
            Request({name: rows[i] for name, rows in observation.items()}, int(seed)) for i, seed in enumerate(seeds)
        ]
        return self.sample(requests, sampling)

    def predict_values(self, observations: Sequence[Mapping[str, Any]]) -> list[float]:
        """Predict the values of raw observations; 0 where engine or policy has no value function."""
        return [0.0] * len(observations)

    def score_first(
        self, observations: Sequence[Mapping[str, Any]], tokens: Sequence[Sequence[int]], model: str | None = None
    ) -> list[list[float]]:
        """Score tokens as the first one of a completion, without drawing any.

        Args:
            observations: raw, of n contexts.
            tokens: ids that are scored in each context.
            model: the frozen model that is asked; None for the policy.

        Returns:
            Log-probs in nats, at temperature 1 over everything that can be chosen, of each context's tokens.

        Raises:
            ConfigError: the engine has a copy of the weights, which scores what it draws alone.
        """
        raise ConfigError(f"{type(self).__name__} scores no tokens that it did not draw; use engine=local")

    def report(self) -> dict[str, float]:
        """Return the metrics since the last report, and reset them. Collective.

        Seconds (time/<phase>) and measurements are those of this process; other amounts, such as malformed outputs, are
        summed over all processes.
        """
        seconds = {name: amount for name, amount in self.spent.items() if name.startswith("time/")}
        report = self.measured | seconds
        counts = {name: amount for name, amount in self.spent.items() if name not in seconds}
        for part in parallel.gather([counts]):
            for name, amount in part.items():
                report[name] = report.get(name, 0.0) + amount
        for name, engine in self.engines.items():
            report |= {key.replace("/", f"/{name}/", 1): amount for key, amount in engine.report().items()}
        self.reset_report()
        return report

    def reset_report(self) -> None:
        """Drop the metrics since the last report, without communication."""
        self.spent, self.measured = {}, {}
        for engine in self.engines.values():
            engine.reset_report()

    def count(self, name: str, amount: float) -> None:
        """Add an amount to one metric of the report."""
        self.spent[name] = self.spent.get(name, 0.0) + amount

    def release_memory(self) -> None:
        """Release memory to the learner: nothing is sampled before the next `sync`."""
        for engine in self.engines.values():
            engine.release_memory()

    def close(self) -> None:
        """Free what the engine holds: processes, ports, memory. It may be called twice, and after a failure."""
        engines, self.engines = self.engines, {}
        for engine in engines.values():
            engine.close()

    def sample_by_model(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        sample_policy: Callable[[Sequence[Request], Sampling], list[Completion]],
    ) -> list[Completion]:
        """Let the policy and each frozen model answer its own requests; completions are in the order of requests.

        Args:
            sample_policy: returns one completion of the policy for each request.
        """
        names = list(dict.fromkeys(request.model for request in requests))
        if names in ([], [None]):
            return sample_policy(requests, sampling)
        if unknown := [name for name in names if name is not None and name not in self.engines]:
            raise ConfigError(
                f"a request names the model {unknown[0]!r}, and the engine has {sorted(self.engines)}; name it under "
                "model.frozen_models, and in sampled_models() of the part that asks for it"
            )
        done: dict[int, Completion] = {}
        for name in names:
            places = [i for i, request in enumerate(requests) if request.model == name]
            subset = [requests[i] for i in places]
            completions = (
                sample_policy(subset, sampling) if name is None else self._sample_model(name, subset, sampling)
            )
            done.update(zip(places, completions))
        return [done[i] for i in range(len(requests))]

    def _sample_model(self, name: str, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Sample from a frozen model, and count its completions and tokens."""
        completions = self.engines[name].sample([replace(request, model=None) for request in requests], sampling)
        self.count(f"engine/{name}/completions", float(len(completions)))
        self.count(f"engine/{name}/tokens", float(sum(int(done.action_mask.sum()) for done in completions)))
        return [mark_sampled(done, name) for done in completions]


def mark_sampled(done: Completion, model: str) -> Completion:
    """Mark a completion of a frozen model: it has no choice of the policy, and no version of this run's weights."""
    return replace(
        done,
        action_mask=torch.zeros_like(done.action_mask),
        policy_version=-1,
        prompt_id=None if done.prompt_id is None else (model, done.prompt_id),  # its tokenizer may be another one
        model=model,
    )


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


@runtime_checkable
class SamplesModels(Protocol):
    """A rollout, an episode transform or a reward whose requests name frozen models."""

    def sampled_models(self) -> frozenset[str]:
        """Return the names that its requests have, as in `model.frozen_models`."""


@runtime_checkable
class RefusesPrompts(Protocol):
    """An engine that cannot sample every prompt that the policy reads."""

    def check_prompt(self, prompt: Prompt) -> None:
        """Refuse a prompt that this engine cannot sample, by name and with what helps."""


def list_models(parts: Iterable[Any]) -> frozenset[str]:
    """Return the names of frozen models that parts sample from; those of a rollout inside another one count."""
    names: set[str] = set()
    for part in parts:
        while part is not None:
            names |= part.sampled_models() if isinstance(part, SamplesModels) else set()
            part = getattr(part, "rollout", None)
    return frozenset(names)
