"""Probabilities of a reference answer that is put in the place of a completion's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch, pad_stack
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.groups import number_distinct
from mmrl.core.types import Context, Prompt
from mmrl.distributed.whole_weights import refuse_sharded


@dataclass(frozen=True)
class Splice:
    """A prompt, a text that the policy or another wrote after it, and the answer that is put after both."""

    prompt: Prompt
    reasoning: str  # may be empty
    answer: str


def split_reasoning(text: str, marker: str) -> str:
    """Return the text up to and including the last marker, after which the answer stands; "" without a marker."""
    return text[: text.rfind(marker) + len(marker)] if marker in text else ""


def reference_answer(prompt: Prompt, part: str) -> str:
    """Return the answer of a prompt as text; refuse one that is neither text nor a number."""
    if not isinstance(prompt.answer, str | int | float):
        raise ValueError(
            f"{part} needs a reference answer in words, but prompt {prompt.key!r} has {type(prompt.answer).__name__}"
        )
    return str(prompt.answer)


def mean_probability(
    probabilities: Tensor,  # [L]
) -> float:
    """Arithmetic mean of the probabilities of an answer's tokens; 0 for an answer without a token."""
    return float(probabilities.mean()) if len(probabilities) else 0.0


@torch.no_grad()
def answer_probabilities(
    splices: Sequence[Splice], ctx: Context, rows: int = 64, model: str | None = None
) -> list[Tensor]:
    """Probability of each token of the answers, given the prompt, the reasoning and the answer's tokens before it.

    Teacher forcing at temperature 1, without gradient.

    Args:
        splices: n of them; an empty answer has no probabilities.
        ctx: of the iteration.
        rows: per forward pass.
        model: name of one of the learner's models; None for the policy with its current weights.

    Returns:
        n tensors [L_i] in [0, 1].
    """
    if model is not None and model not in ctx.models:
        raise ValueError(f"data.transforms: the learner has no model {model!r}, only {sorted(ctx.models)}")
    policy = ctx.policy if model is None else ctx.models[model]
    refuse_sharded(policy, "data.transforms (probability of an answer)")
    # token ids [R_i] of the reasoning and [L_i] of the answer
    before = [policy.tokenize(splice.reasoning) for splice in splices]
    answers = [policy.tokenize(splice.answer) for splice in splices]
    out: list[Tensor] = []
    with evaluation_mode(policy):
        for start in range(0, len(splices), rows):
            part = slice(start, start + rows)
            batch = _batch(splices[part], before[part], answers[part], ctx)
            # [rows, max(R_i + L_i)] log-probability of each token, padded on the right
            logprobs = (
                policy(Batch({name: column.to(policy.device) for name, column in batch.items()})).logprobs.float().cpu()
            )
            # the answer's L_i probabilities follow the R_i of the reasoning
            places = zip(logprobs, before[part], answers[part])
            out += [row[len(first) : len(first) + len(last)].exp() for row, first, last in places]
    return out


def _batch(splices: Sequence[Splice], before: Sequence[Tensor], answers: Sequence[Tensor], ctx: Context) -> Batch:
    numbers = number_distinct(splice.prompt.key + repr(splice.prompt.messages) for splice in splices)
    encoded: dict[int, dict] = {}
    for number, splice in zip(numbers, splices):
        if number not in encoded:
            encoded[number] = ctx.policy.encode(splice.prompt.observation)
    observations = [encoded[number] for number in numbers]
    ids = [torch.cat(pair) for pair in zip(before, answers)]
    mask = pad_stack([torch.ones(len(row), dtype=torch.bool) for row in ids], False)
    columns = ctx.policy.collate(observations)
    return Batch(
        {f"obs.{name}": column for name, column in columns.items()},
        action=pad_stack(ids),
        action_mask=mask,
        prompt_id=torch.tensor(numbers),
        temperature=torch.ones(len(ids)),
    )
