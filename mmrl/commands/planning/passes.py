"""Memory of the passes of a text policy, traced through its own code on tensors without content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from mmrl.commands.planning.live_bytes import LiveBytes
from mmrl.commands.planning.packs import PlannedPack, describe_mask, plan_packs, without_content
from mmrl.commands.planning.parameters import measure_module
from mmrl.core.batch import Batch
from mmrl.core.types import Sampling
from mmrl.distributed.sequence_group import SequenceGroup
from mmrl.ops.choice import draw
from mmrl.policies.text.cache import build_cache
from mmrl.policies.text.generation import next_logits
from mmrl.policies.text.packing.packed_inputs import PackedInputs
from mmrl.policies.text.policy import TextPolicy


@dataclass(frozen=True)
class LearnPass:
    """Bytes beyond weights of forward and backward over one micro-batch of packed batches."""

    activations: int  # kept for backward, without logits and masks
    logits: int  # that exist at once, with their gradient
    casts: int  # copies of weights in 16 bits
    first_peak: int  # of a minibatch's first micro-batch, gradients that it allocates included
    next_peak: int  # of the others, without the gradients that exist then
    passes: int  # packed batches
    tokens: int
    masks: int = 0  # attention masks over all pairs of tokens, kept for backward


@dataclass(frozen=True)
class PackTrace:
    """Bytes of one packed batch."""

    saved: int  # kept for backward
    casts: int
    forward_peak: int
    first_backward: int  # peak; it allocates the gradients
    next_backward: int  # peak without the gradients, which exist
    masks: int = 0  # of `saved`, attention masks over all pairs of tokens


@dataclass(frozen=True)
class RolloutPass:
    """Bytes beyond weights of sampling one batch of completions."""

    cache: int  # keys and values
    prefill_peak: int
    decode_peak: int


class PlannedGroup(SequenceGroup):
    """Sequence group without processes: an exchange takes the memory of a real one, and its numbers are not used."""

    def exchange(self, parts: Tensor) -> Tensor:
        return parts.contiguous().clone()


TRACED: dict[Any, PackTrace] = {}
"""Traces of this process by policy, shape and options: changes of a plan are planned with the same ones."""
SAMPLED: dict[Any, RolloutPass] = {}
"""Traces of sampling, in the same way."""


class TextPasses:
    """Traces the passes of a policy whose weights are fake (`fake_weights`).

    Args:
        policy: with fake weights.
        device: type of the device that is planned for, which decides the packing.
        mixed: computes in 16 bits (autocast).
    """

    def __init__(self, policy: TextPolicy, device: str, mixed: bool):
        self.policy, self.device, self.mixed = policy, torch.device(device), mixed
        self.mode: FakeTensorMode | None = getattr(next(policy.parameters()), "fake_mode", None)
        policy.measure_network()  # compares the output layer, which is no part of a pass
        self.known = (type(policy), repr(policy), repr(measure_module(policy)), policy.output_layer.max_logits)

    def learn(self, batch: Batch, checkpointing: bool) -> LearnPass | None:
        """Trace forward and backward of a micro-batch; None for a model without activation checkpointing."""
        model: Any = self.policy.model
        model.gradient_checkpointing_disable()
        if checkpointing:
            if not getattr(model, "supports_gradient_checkpointing", True):
                return None
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.policy.train()
        parts, traces, shapes = self.policy.sequence_group.size, list[PackTrace](), list[tuple[int, int, int]]()
        for packed in self._pack(batch):
            shapes.append(_shape(packed.inputs))
            key = (*self.known, parts, shapes[-1], describe_mask(packed.inputs), checkpointing, self.mixed)
            if key not in TRACED:
                TRACED[key] = self._trace(packed, batch)
            traces.append(TRACED[key])
        logits = [self._logits(rows * width // parts) for rows, _, width in shapes]  # processes divide the tokens
        return combine(
            traces,
            gradients=sum(p.nbytes for p in self.policy.parameters() if p.requires_grad),
            logits=[saved for saved, _ in logits],
            in_backward=max(passing for _, passing in logits),
            tokens=sum(rows * length // parts for rows, length, _ in shapes),
        )

    def score(self, batch: Batch) -> int:
        """Trace scoring without gradient: peak bytes."""
        self.policy.eval()
        peaks, shapes = [0], set()
        for packed in self._pack(batch):
            shape = (_shape(packed.inputs), describe_mask(packed.inputs))
            if shape in shapes:
                continue
            shapes.add(shape)
            live = LiveBytes(self.policy, mode=self.mode)
            with torch.no_grad(), live, self._precision():
                self.policy.score_inputs(packed.inputs, batch)
            peaks.append(max(live.peak + packed.mask, packed.mask_peak))
        return max(peaks)

    def sample(self, observation: dict[str, Any], owner: Tensor, sampling: Sampling) -> RolloutPass:
        """Trace the prefill, and the decode step of the last token.

        Args:
            observation: collated prompts.
            owner: [R] the prompt of each completion.
        """
        if set(observation) != {"input_ids", "attention_mask"}:  # values decide shapes, such as those of images
            return self._trace_sample(observation, owner, sampling)
        padded = not observation["attention_mask"].all()
        shape = (tuple(observation["input_ids"].shape), len(owner), padded)
        key = (*self.known, shape, repr(sampling), self.mixed)
        if key not in SAMPLED:
            SAMPLED[key] = self._trace_sample(observation, owner, sampling)
        return SAMPLED[key]

    @torch.no_grad()
    def _trace_sample(self, observation: dict[str, Any], owner: Tensor, sampling: Sampling) -> RolloutPass:
        policy = self.policy.eval()
        ids, attention = observation["input_ids"], observation["attention_mask"]
        inputs = {"input_ids": ids, **policy.extra_inputs(observation)}
        positions = policy.positions(ids, attention, inputs)
        padded, attention = not attention.all(), without_content(attention, self.mode)
        cache: Any = build_cache(policy.model, sampling.max_tokens)
        live = LiveBytes(policy, mode=self.mode)
        with live, self._precision():
            logits = next_logits(policy.model, inputs, attention, positions, cache)[owner]
            prefill = live.peak
            live.reset_peak()
            cache.expand(owner)
            if sampling.max_tokens > 2:
                cache.grow(sampling.max_tokens - 2)
            following = positions[..., owner, -1:] + sampling.max_tokens - 1
            width = ids.shape[1] + sampling.max_tokens - 1
            mask = (
                torch.cat([attention[owner], attention.new_ones(len(owner), width - ids.shape[1])], 1)
                if padded
                else None
            )
            token = {"input_ids": ids[owner, -1:]}
            logits = next_logits(policy.model, token, mask, following, cache)
            _draw(logits, sampling)
        return RolloutPass(_cache_bytes(cache), prefill, live.peak)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.mixed)

    def _logits(self, tokens: int) -> tuple[int, int]:
        """Bytes of the logits that a pass keeps for backward, and of what it needs then: their gradient, or a chunk."""
        policy, size = self.policy, 2 if self.mixed else self.policy.model.dtype.itemsize
        of_token = policy.model.config.get_text_config().vocab_size * size
        chunk = policy.output_layer.rows_of_chunk(policy.model, tokens, policy.text_ids())
        return (tokens * of_token, tokens * of_token) if chunk is None else (0, 2 * min(chunk, tokens) * of_token)

    def _pack(self, batch: Batch) -> Iterator[PlannedPack]:
        return plan_packs(self.policy, batch, self.device, self.mode)

    def _trace(self, packed: PlannedPack, batch: Batch) -> PackTrace:
        inputs, mask = packed.inputs, packed.mask
        live, casts = LiveBytes(self.policy, _shape(inputs)[1], self.mode), 0
        with live, self._precision():
            parts = self.policy.score_inputs(inputs, batch)
            saved, forward_peak, masks = live.live, live.peak, live.masks
            if self.mixed:  # the second pass shares the copies of the first
                other = self.policy.score_inputs(inputs, batch)
                casts = 2 * saved - live.live
                del other
        live.reset_peak()
        with live, live.gradients_aside(self.policy):
            torch.stack([part.sum().float() for part in parts if part.requires_grad]).sum().backward()
        for parameter in self.policy.parameters():
            parameter.grad = None
        forward_peak = max(forward_peak + mask, packed.mask_peak)
        return PackTrace(saved + mask, casts, forward_peak, live.peak + mask, live.peak_of_rest + mask, masks + mask)


def combine(
    parts: Sequence[PackTrace], gradients: int, logits: Sequence[int], in_backward: int, tokens: int
) -> LearnPass:
    """Combine packed batches: all are computed forward, and backward from the last to the first.

    Args:
        gradients: bytes of those of the weights.
        logits: bytes that each part keeps for backward.
        in_backward: bytes of logits and their gradient that backward allocates for one part.
        tokens: of all parts.
    """
    before, first_peak, next_peak = 0, 0, 0
    for number, part in enumerate(parts):
        last = number + 1 == len(parts)
        next_peak = max(next_peak, before + part.forward_peak, before + part.next_backward)
        backward = part.first_backward if last else part.next_backward + gradients
        first_peak = max(first_peak, before + part.forward_peak, before + backward)
        before += part.saved - part.casts
    casts, masks = max(part.casts for part in parts), sum(part.masks for part in parts)
    return LearnPass(
        activations=before - sum(logits) - masks,
        logits=sum(logits) + in_backward,
        casts=casts,
        first_peak=first_peak,
        next_peak=next_peak,
        passes=len(parts),
        tokens=tokens,
        masks=masks,
    )


def _shape(packed: PackedInputs) -> tuple[int, int, int]:
    """Sequences, tokens of a sequence, and scored tokens of a sequence."""
    rows, length = packed.tensors["input_ids"].shape
    return rows, length, packed.width


def _cache_bytes(cache: Any) -> int:
    """Bytes of keys, values and states of all layers, prompts that are stored once included."""
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in cache.list_tensors()}
    return sum(storages.values())


def _draw(logits: Tensor, sampling: Sampling) -> None:
    """Draw one id per row; truncated sampling, whose shapes depend on values, is traced up to there."""
    uniform = torch.full((len(logits),), 0.5)
    options = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    with suppress(DynamicOutputShapeException, DataDependentOutputException):
        draw(logits, uniform, greedy=sampling.decode == "argmax", **options)
