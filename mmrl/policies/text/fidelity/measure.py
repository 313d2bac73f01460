"""Differences between a policy and the plain transformers model, on the same rows and the same weights."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mmrl.policies.text.fidelity.probe import OWNER, Probe, choose_length, row_inputs, sample_probe
from mmrl.policies.text.loading import NoiseSettings
from mmrl.policies.text.packing.plan import PackedBatch, plan_equal_lengths
from mmrl.policies.text.packing.prefix_sharing import in_fp32

Scores = list[tuple[Tensor, Tensor, Tensor]]
"""Log-probs [t], entropies [t] and `LogSurprise` [t] of each row's choices."""

EXACT = 1e-3
"""Nats, of weights in fp32."""
TEMPERATURES = (1.0, 8.0, 64.0, 512.0)
"""Temperatures of the comparison; only a policy that repeats its completions gets to the next."""
PADDED: list[PackedBatch] = [[(0,), (1,)]]
"""The short row beside a longer one."""

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
        with restore_noise(self.noise), use_attention(model, self.attention):
            yield


@contextmanager
def restore_noise(noise: NoiseSettings) -> Iterator[None]:
    """Give modules their settings of noise inside the context."""
    try:
        for module, name, value in noise:
            setattr(module, name, value)
        yield
    finally:
        for module, name, _ in noise:
            setattr(module, name, 0.0)


def is_rounded(model: Any) -> bool:
    """Whether a model is compared in bf16 or fp16, because copies of its weights in fp32 are too large."""
    return model.dtype != torch.float32 and sum(weight.numel() for weight in model.parameters()) >= LARGE


def measure_differences(policy: Any, plain: Plain, limit: float = EXACT, videos: bool = False) -> dict[str, float]:
    """Measure max |difference| in nats, by what the policy did.

    "positions" are infinite if those of a row depend on the rows beside it, else 0. "sampled" is what decoding with
    the cache said of the log-probs of its choices. The others are scores as the learn step computes them, log-probs,
    entropies and `LogSurprise`: "padded" beside a longer row, "alone", "shared" and "packed" in sequences with a mask
    over pairs of tokens, and "trained", in training mode. Weights of low precision are compared as fp32 copies, up to
    `LARGE`. A policy that is so decided that it samples one completion twice is compared at higher temperatures too.

    Args:
        policy: with the attention that it would use, and before adapters.
        plain: the checkpoint as transformers loads it.
        limit: differences in nats up to which the policy is exact.
        videos: compare on prompts with videos in place of images.
    """
    precision = nullcontext() if is_rounded(policy.model) else in_fp32(policy.model)
    differences: dict[str, float] = {}
    with torch.no_grad(), fixed_draws(), precision:
        for temperature in TEMPERATURES:
            probe, values = _compare_all(policy, plain, limit, temperature, videos)
            differences = {name: max(value, differences.get(name, 0.0)) for name, value in values.items()}
            if not probe.repeats() or max(differences.values()) > limit:
                break
    return differences


def _compare_all(
    policy: Any, plain: Plain, limit: float, temperature: float, videos: bool
) -> tuple[Probe, dict[str, float]]:
    """Compare the rows of a probe in every way."""
    policy.eval()
    probe = sample_probe(policy, choose_length(policy.model.config, bool(plain.noise)), temperature, videos)
    with plain.restore(policy.model):
        expected = score_plainly(policy.model, probe, policy.per_token, policy.forbidden)
    sampled = [probe.batch["behavior_logprobs"][row, :n] for row, n in enumerate(probe.lengths)]
    values = {"positions": 0.0 if depend_on_row_alone(policy, probe) else torch.inf}
    values |= {"sampled": max(_largest(one - other[0]) for one, other in zip(sampled, expected))}
    values |= {name: compare(policy, probe, packing, expected) for name, packing in list_packings(policy).items()}
    policy.train()
    rows = PADDED if policy.takes_padding else plan_equal_lengths(policy.extract_tokens(probe.batch).lengths)
    trained = compare(policy, probe, rows, expected)
    if trained > limit:  # one pass tells of padding and of noise, unless it differs
        policy.eval()
    padded = trained if trained <= limit else compare(policy, probe, rows, expected)
    return probe, {"padded": padded, **values, "trained": trained}


def depend_on_row_alone(policy: Any, probe: Probe) -> bool:
    """Whether the positions of each prompt are those that it has without the other prompts beside it."""

    def compute(rows: Sequence[Any]) -> tuple[Tensor, Tensor]:
        columns = policy.collate(rows)
        ids, attention = columns["input_ids"], columns["attention_mask"]
        return policy.positions(ids, attention, {"input_ids": ids, **policy.extra_inputs(columns)}), attention

    together, attention = compute(probe.observations)
    for row, observation in enumerate(probe.observations):
        alone, _ = compute([observation])
        if not torch.equal(together[..., row, attention[row].bool()], alone[..., 0, :]):
            return False
    return True


def list_packings(policy: Any) -> dict[str, list[PackedBatch]]:
    """List the packings to compare, by name, but for `PADDED`."""
    packings: dict[str, list[PackedBatch]] = {"alone": [[(0,)]]}
    if policy.prefix_sharing.masks:
        packings["shared"] = [[(0,), (1, 2)]]
    if policy.prefix_sharing.across:
        packings["packed"] = [[(0, 1, 2)]]
    return packings


def compare(policy: Any, probe: Probe, packing: list[PackedBatch], expected: Scores) -> float:
    """Return the largest difference of the rows of a packing."""
    tokens = policy.extract_tokens(probe.batch).without_common_choices()
    choice, *scores = policy.score_distributions(tokens, packing, probe.batch)
    width = probe.batch["action"].shape[1]
    worst = 0.0
    for row in {row for sequences in packing for sequence in sequences for row in sequence}:
        at = (choice // width == row) & (choice % width < probe.lengths[row])
        order = choice[at].argsort()
        differences = [values[at][order] - reference for values, reference in zip(scores, expected[row], strict=True)]
        worst = max(worst, *map(_largest, differences))
    return worst


def score_plainly(model: Any, probe: Probe, per_token: frozenset[str], forbidden: Sequence[int]) -> Scores:
    """Score the rows without padding, with the model's own attention, masks and positions.

    Rows of text of the same length are one batch, since the model would compute nothing else of them alone.
    """
    scores: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    for rows, inputs in _group_rows(probe, per_token):
        completions = probe.batch["action"][rows, : probe.lengths[rows[0]]]
        length = completions.shape[1]
        logits = model(**inputs, use_cache=False, **_keep_logits(model, length + 1)).logits[:, -length - 1 : -1].float()
        allowed = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
        allowed[list(forbidden)] = False
        logits = (logits / probe.batch["temperature"][rows, None, None]).masked_fill(~allowed, -torch.inf)
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p.nan_to_num(neginf=0.0)).sum(-1)
        surprise = (-log_p[..., allowed].mean(-1)).log()
        scores |= dict(zip(rows, zip(log_p.gather(-1, completions[..., None])[..., 0], entropy, surprise)))
    return [scores[row] for row in range(len(OWNER))]


def _group_rows(probe: Probe, per_token: frozenset[str]) -> list[tuple[list[int], dict[str, Tensor]]]:
    """Group rows that need no padding beside each other, with their inputs; rows with images stay alone."""
    groups: dict[Any, list[int]] = {}
    for row, length in enumerate(probe.lengths):
        observation = probe.observations[OWNER[row]]
        alone = row if set(observation) - {"input_ids"} else None
        groups.setdefault((alone, len(observation["input_ids"]), length), []).append(row)
    grouped = []
    for rows in groups.values():
        inputs = [
            row_inputs(probe.observations[OWNER[row]], probe.batch["action"][row, : probe.lengths[row]], per_token)
            for row in rows
        ]
        grouped.append((rows, {name: torch.cat([each[name] for each in inputs]) for name in inputs[0]}))
    return grouped


def _keep_logits(model: Any, tokens: int) -> dict[str, int]:
    """Return the argument for the logits of the last tokens alone, where the model has it."""
    has = "logits_to_keep" in inspect.signature(type(model).forward).parameters
    return {"logits_to_keep": tokens} if has else {}


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
def fixed_draws() -> Iterator[None]:
    """Leave torch's random state as it was: noise that a model draws must not move what is drawn later."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
