"""LocalEngine: sample from the policy itself, without a copy of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch, Ragged
from mmrl.core.errors import check_at_least
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import Noise
from mmrl.core.transitions import ActionBatch
from mmrl.core.types import Completion, Ended, Observation, Request, Sampling
from mmrl.distributed.heap import release_free_memory
from mmrl.engines.base import Engine, context_id, contexts, distinct
from mmrl.ops.masked import last_inside
from mmrl.policies.base import Action, Policy

LARGE = 20_000_000  # parameters from which on the memory that a phase leaves behind is worth the time to release it


class LocalEngine(Engine):
    """Runs `policy.act` on batches of requests of similar length, on the policy's device.

    Frozen models that requests name are sampled in the same way, each in batches of its own.

    Args:
        max_rows: most contexts in one batch; lower it when sampling runs out of memory.
    """

    def __init__(self, max_rows: int = 256):
        check_at_least(1, "engine", max_rows=max_rows)
        super().__init__()
        self.max_rows = max_rows
        self._policy: Policy | None = None
        self._version = 0
        self._device = torch.device("cpu")  # of the policy, at the last sync

    def sync(self, policy: Policy, version: int) -> None:
        self._policy, self._version, self._device = policy, version, policy.device
        self.release_memory()  # of the learn step

    def build_engine(self, name: str) -> LocalEngine:
        return type(self)(self.max_rows)

    def release_memory(self) -> None:
        """Release the free memory of the CPU's heap between sampling and learning, for large policies."""
        super().release_memory()
        if self._policy is None or self._device.type != "cpu":
            return
        if sum(parameter.numel() for parameter in self._policy.parameters()) >= LARGE:
            release_free_memory()

    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return self.sample_by_model(requests, sampling, self._sample_policy)

    @torch.no_grad()
    def _sample_policy(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        policy = self._policy_in_use()
        distinct_requests, owner = distinct(requests)
        read = contexts(distinct_requests, policy)
        # sorted by context and length, so that batches need little padding and few copies
        order = sorted(range(len(requests)), key=lambda i: (_length(read[owner[i]]), owner[i]))
        done: dict[int, Completion] = {}
        with evaluation_mode(policy):
            for rows in cut_rows(order, self.max_rows, [read[number] for number in owner], policy):
                numbers, batch = zip(*((owner[i], requests[i]) for i in rows))
                done.update(zip(rows, self._run(policy, read, numbers, batch, sampling)))
        return [done[i] for i in range(len(requests))]

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], seeds: Sequence[int], sampling: Sampling) -> Sequence[Completion]:
        policy = self._policy_in_use()
        inputs = policy.encode_batch(observation) if len(seeds) else None
        if inputs is None:
            return super().act(observation, seeds, sampling)
        with evaluation_mode(policy):
            starts = range(0, len(seeds), self.max_rows)
            return ActionBatch.concatenate(
                [self._act_batch(policy, inputs, seeds, sampling, start) for start in starts]
            )

    @torch.no_grad()
    def predict_values(self, observations: Sequence[Mapping[str, Any]]) -> list[float]:
        policy, values = self._policy_in_use(), []
        with evaluation_mode(policy):
            for start in range(0, len(observations), self.max_rows):
                some = observations[start : start + self.max_rows]
                inputs = policy.collate([policy.encode(observation) for observation in some])
                predictions = policy.predict_values({name: column.to(self._device) for name, column in inputs.items()})
                values += super().predict_values(some) if predictions is None else predictions.float().tolist()
        return values

    @torch.no_grad()
    def score_first(
        self, observations: Sequence[Mapping[str, Any]], tokens: Sequence[Sequence[int]], model: str | None = None
    ) -> list[list[float]]:
        if model is not None:
            return self.engines[model].score_first(observations, tokens)
        policy = self._policy_in_use()
        encoded = [policy.encode(observation) for observation in observations]
        rows = [(number, token) for number, ids in enumerate(tokens) for token in ids]
        scores: list[list[float]] = [[] for _ in observations]
        with evaluation_mode(policy):
            for start in range(0, len(rows), self.max_rows):
                piece = rows[start : start + self.max_rows]
                numbers, ids = zip(*piece)
                batch = _first_choices([encoded[number] for number in numbers], numbers, ids, policy)
                out = policy(Batch({name: column.to(self._device) for name, column in batch.items()}))
                for number, score in zip(numbers, out.full_logprobs[:, 0].float().tolist()):
                    scores[number].append(score)
        return scores

    def _policy_in_use(self) -> Policy:
        if self._policy is None:
            raise RuntimeError("the engine has no weights yet: call sync(policy, version) before it is used")
        return self._policy

    def _count(self, action: Action) -> None:
        """Add the policy's times and counts to the metrics."""
        for name, amount in [*((f"time/{k}", v) for k, v in action.seconds.items()), *action.counts.items()]:
            self.count(name, amount)

    def _act_batch(
        self, policy: Policy, inputs: dict[str, Tensor], seeds: Sequence[int], sampling: Sampling, start: int
    ) -> ActionBatch:
        """Sample the actions in at most `max_rows` contexts, as columns."""
        rows = slice(start, start + self.max_rows)
        observations = {name: column[rows] for name, column in inputs.items()}
        on_device = {name: column.to(self._device) for name, column in observations.items()}
        action = policy.act_batch(on_device, sampling, Noise(seeds[rows]))
        self._count(action)
        if action.cached_features:
            observations = {
                name: column for name, column in observations.items() if name not in policy.cached_inputs
            } | action.cached_features
        columns: dict[str, Any] = {"action": action.action, "action_mask": action.action_mask, **action.extra}
        for name, column in (("behavior_logprobs", action.behavior_logprobs), ("values", action.values)):
            if column is not None:
                columns[name] = column.float()
        columns |= {f"obs.{name}": column for name, column in observations.items()}
        deferred = partial(self._score_deferred, policy, sampling.temperature, self._version)
        return ActionBatch({name: column.to("cpu") for name, column in columns.items()}, action.output, deferred)

    @torch.no_grad()
    def _score_deferred(
        self, policy: Policy, temperature: float, version: int, columns: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Compute the columns that do not affect the actions, such as log-probs and values."""
        n = len(columns["action"])
        out = {"temperature": torch.full((n,), temperature), "policy_version": torch.full((n,), version)}
        on_device = {name: column.to(self._device) for name, column in (columns | out).items()}
        with evaluation_mode(policy):
            rest = policy.score_batch(on_device)
        return out | {name: column.float().cpu() for name, column in rest.items()}

    def _run(
        self,
        policy: Policy,
        read: list[Observation],
        numbers: Sequence[int],
        requests: Sequence[Request],
        sampling: Sampling,
    ) -> list[Completion]:
        """Sample one completion for each request; `numbers` has the index of each request's context."""
        place = {number: i for i, number in enumerate(dict.fromkeys(numbers))}
        columns = Batch(policy.collate([read[number] for number in place]))
        device = policy.device
        inputs = {name: column.to(device) for name, column in columns.items()}
        owner = torch.tensor([place[number] for number in numbers], device=device)
        action = policy.act_groups(inputs, owner, sampling, Noise([request.seed for request in requests]))
        self._count(action)
        ended: list[Ended] = action.ended or ["done"] * len(requests)
        lengths = last_inside(action.action_mask).clamp(min=1).tolist()
        # one transfer per column, not one per row
        actions, logprobs, mask = action.action.cpu(), action.behavior_logprobs.float().cpu(), action.action_mask.cpu()  # type: ignore[union-attr]
        values = None if action.values is None else action.values.float().cpu()
        extra = {name: _rows(column.to("cpu"), lengths) for name, column in action.extra.items()}
        cached_features = {name: column.cpu() for name, column in action.cached_features.items()}
        temperature = torch.tensor(sampling.temperature)
        completions = []
        for i, number in enumerate(numbers):
            observation = read[number]
            if cached_features:
                observation = {k: v for k, v in observation.items() if k not in policy.cached_inputs}
                observation |= {name: column[i] for name, column in cached_features.items()}
            t = lengths[i]
            completions.append(
                Completion(
                    observation=observation,
                    action=actions[i, :t],
                    behavior_logprobs=logprobs[i, :t],
                    action_mask=mask[i, :t],
                    output=action.output[i],
                    ended=ended[i],
                    value=None if values is None else (values[i] if values.dim() == 1 else values[i, :t]),
                    extra={"temperature": temperature, **{name: rows[i] for name, rows in extra.items()}},
                    policy_version=self._version,
                    prompt_id=None if cached_features else context_id(requests[i]),  # features are stored by row
                )
            )
        return completions


def _first_choices(
    observations: Sequence[Observation], numbers: Sequence[int], ids: Sequence[int], policy: Policy
) -> Batch:
    """Rows of one token each, behind these encoded observations; rows of one number share theirs."""
    single = torch.ones(len(ids), 1)
    batch = Batch(
        action=torch.tensor(ids)[:, None],
        action_mask=single.bool(),
        behavior_logprobs=0 * single,
        temperature=single[:, 0],
        prompt_id=torch.tensor(numbers),
        prompt_length=torch.tensor([len(observation.get("input_ids", ())) for observation in observations]),
    )
    batch |= {f"obs.{name}": column for name, column in policy.collate(observations).items()}
    return batch


def _rows(column: Tensor | Ragged, lengths: Sequence[int]) -> Sequence[Tensor]:
    """Split a column into rows: of a per-choice column up to the row's length, of a ragged one its items."""
    if isinstance(column, Ragged):
        return column.values.split(column.lengths.tolist())
    return [row[:length] for row, length in zip(column, lengths)]


def cut_rows(order: Sequence[int], most: int, read: Sequence[Observation], policy: Policy) -> Iterator[Sequence[int]]:
    """Cut ordered rows into batches of at most `most`; a policy that takes no padding reads equal lengths at once.

    Args:
        order: numbers of rows.
        most: rows of a batch.
        read: what each row reads.
    """
    if not policy.takes_padding:
        order = sorted(order, key=lambda row: _length(read[row]))
    for _, group in groupby(order, key=lambda row: policy.takes_padding or _length(read[row])):
        rows = list(group)
        yield from (rows[start : start + most] for start in range(0, len(rows), most))


def _length(observation: Observation) -> int:
    ids = observation.get("input_ids")
    return 0 if ids is None else len(ids)
