"""Differences between a policy and the plain transformers model, on the same rows and the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mmrl.policies.text.fidelity.probe import OWNER, Probe, row_inputs, sample_probe
from mmrl.policies.text.loading import NoiseSettings
from mmrl.policies.text.packing.plan import PackedBatch
from mmrl.policies.text.packing.prefix_sharing import in_fp32

Scores = list[tuple[Tensor, Tensor]]
"""Log-probs [t] and entropies [t] of each row's choices, in nats."""


LARGE = 1_000_000_000
"""Parameters from which on weights of low precision are compared as they are, without copies in fp32."""


@dataclass(frozen=True)
class Plain:
    """What a checkpoint is without us.

    Args:
        attention: implementation that transformers chose for it.
        noise: settings that we set to zero, with their values.
    """

    attention: str
    noise: NoiseSettings = field(default_factory=list)

    @contextmanager
    def restore(self, model: Any) -> Iterator[None]:
        """Run the language model as transformers alone does inside the context."""
        try:
            for module, name, value in self.noise:
                setattr(module, name, value)
            with use_attention(model, self.attention):
                yield
        finally:
            for module, name, _ in self.noise:
                setattr(module, name, 0.0)


def is_rounded(model: Any) -> bool:
    """Whether a model is compared in bf16 or fp16, because copies of its weights in fp32 are too large."""
    return model.dtype != torch.float32 and sum(weight.numel() for weight in model.parameters()) >= LARGE


def measure_differences(policy: Any, plain: Plain) -> dict[str, float]:
    """Measure max |difference| in nats of log-probs and entropies, by what the policy did.

    "sampled" is what decoding with the cache said of its choices, the others are scores as the learn step computes
    them: "padded" beside a longer row, "alone", "shared" and "packed" in sequences with a mask over pairs of tokens,
    and "trained", in training mode. Weights of low precision are compared as fp32 copies, up to `LARGE`.

    Args:
        policy: with the attention that it would use, and before adapters.
        plain: the checkpoint as transformers loads it.
    """
    model = policy.model
    precision = nullcontext() if is_rounded(model) else in_fp32(model)
    with torch.no_grad(), _fixed_draws(), precision:
        model.eval()
        probe = sample_probe(policy)
        with plain.restore(model):
            expected = score_plainly(model, probe, policy.per_token, policy.forbidden)
        sampled = [probe.batch["behavior_logprobs"][row, :n] for row, n in enumerate(probe.lengths)]
        differences = {"sampled": max(_largest(one - other[0]) for one, other in zip(sampled, expected))}
        for name, packing in list_packings(policy).items():
            differences[name] = compare(policy, probe, packing, expected)
        policy.train()
        differences["trained"] = compare(policy, probe, [[(0,), (1,)]], expected)
    return differences


def list_packings(policy: Any) -> dict[str, list[PackedBatch]]:
    """List the packings to compare, by name."""
    packings: dict[str, list[PackedBatch]] = {"padded": [[(0,), (2,)]], "alone": [[(1,)]]}
    if policy.prefix_sharing.masks:
        packings["shared"] = [[(0, 1), (2, 3)]]
    if policy.prefix_sharing.across:
        packings["packed"] = [[(0, 1, 2, 3)]]
    return packings


def compare(policy: Any, probe: Probe, packing: list[PackedBatch], expected: Scores) -> float:
    """Return the largest difference of the rows of a packing."""
    tokens = policy.extract_tokens(probe.batch).without_common_choices()
    choice, logprobs, entropies, *_ = policy._score_batches(tokens, packing, probe.batch)
    width = probe.batch["action"].shape[1]
    worst = 0.0
    for row in {row for sequences in packing for sequence in sequences for row in sequence}:
        at = (choice // width == row) & (choice % width < probe.lengths[row])
        order = choice[at].argsort()
        for scores, reference in ((logprobs, expected[row][0]), (entropies, expected[row][1])):
            worst = max(worst, _largest(scores[at][order] - reference))
    return worst


def score_plainly(model: Any, probe: Probe, per_token: frozenset[str], forbidden: Sequence[int]) -> Scores:
    """Score each row alone with the model's own attention, masks and positions."""
    scores = []
    for row, length in enumerate(probe.lengths):
        completion = probe.batch["action"][row, :length]
        inputs = row_inputs(probe.observations[OWNER[row]], completion, per_token)
        logits = model(**inputs, use_cache=False).logits[0, -length - 1 : -1].float()
        logits[:, list(forbidden)] = -torch.inf
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p.nan_to_num(neginf=0.0)).sum(-1)
        scores.append((log_p.gather(1, completion[:, None])[:, 0], entropy))
    return scores


def _largest(difference: Tensor) -> float:
    return float(difference.abs().nan_to_num(torch.inf).max())  # NaN is no agreement


@contextmanager
def use_attention(model: Any, name: str) -> Iterator[None]:
    """Run the language model with another attention implementation inside the context."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


@contextmanager
def _fixed_draws() -> Iterator[None]:
    """Leave torch's random state as it was: noise that a model draws must not move what is drawn later."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
