"""Columns of a teacher on a server: its likely tokens at every choice, and advantages by spans of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.types import Context
from mmrl.methods.offline.teacher_server.spans import align_spans
from mmrl.methods.offline.teacher_server.teacher import ServerTeacher
from mmrl.ops.masked import last_inside

register_columns(
    {
        "teacher_ids": Column("[N, T, K]", "ids", "tokens that a teacher on a server reports; -1 fills up", pad=-1),
        "teacher_logprobs": Column("[N, T, K]", "nats", "the teacher's log-probs of `teacher_ids`, at temperature 1"),
    }
)


@dataclass(frozen=True)
class ServerAnnotator(Annotator):
    """Base class of annotators that ask a teacher on a server about all rows.

    Args:
        teacher: its name in `model.frozen_models`.
    """

    teacher: str = "teacher"

    def models(self) -> frozenset[str]:
        return frozenset({self.teacher})

    def reads(self) -> frozenset[str]:
        return frozenset({"action", "action_mask", "behavior_logprobs", "temperature"})

    def model_of(self, ctx: Context) -> ServerTeacher:
        model = ctx.models[self.teacher]
        if not isinstance(model, ServerTeacher):
            raise ValueError(f"model.frozen_models.{self.teacher} is a {type(model).__name__}; give it a url")
        return model

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Metrics over all ranks: requests; retried ones; prompt tokens, which are paid for; seconds a request took."""
        counts = self.model_of(ctx).client.take_counts()
        total = {name: math.fsum(each[name] for each in ctx.collector.gather([counts])) for name in sorted(counts)}
        total["seconds"] /= max(total["requests"], 1.0)
        return total


@dataclass(frozen=True)
class TeacherTopLogprobs(ServerAnnotator):
    """The teacher's most likely tokens at every choice, for a teacher of the policy's tokenizer.

    Raises:
        ValueError: a row was sampled at another temperature than 1, or has images.
    """

    def writes(self) -> frozenset[str]:
        return frozenset({"teacher_ids", "teacher_logprobs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        if not torch.allclose(batch["temperature"], torch.tensor(1.0)):
            raise ValueError("a teacher on a server reports log-probs at temperature 1; set sampling.temperature=1")
        prompts, completions = split_rows(batch)
        places = self.model_of(ctx).score_ids([[*prompt, *ids] for prompt, ids in zip(prompts, completions)])
        # [N, T, K]: of each choice the reported ids in order, -1 fills up
        rows = [each[len(prompt) - 1 :] for each, prompt in zip(places, prompts)]
        count = max((len(place) for row in rows for place in row), default=1)
        shape = (*batch["action"].shape, count)
        ids, logprobs = torch.full(shape, -1), torch.zeros(shape)
        for n, row in enumerate(rows):
            for t, place in enumerate(row):
                ids[n, t, : len(place)] = torch.tensor(list(place))
                logprobs[n, t, : len(place)] = torch.tensor(list(place.values()))
        return batch.with_columns(teacher_ids=ids, teacher_logprobs=logprobs)


@dataclass(frozen=True)
class SpanAdvantage(ServerAnnotator):
    """Advantages log p_teacher(span) - log p_student(span) of every token of a span, in nats, for any tokenizer.

    The policy gradient of a span is A sum_i grad log p(s_i), so its tokens share the span's advantage; in expectation
    it descends the reverse KL divergence of a span from the teacher. The teacher reads the prompt's text without
    special tokens; the end-of-sequence token, and tokens in no span, have advantage 0.

    Args:
        teacher: its name in `model.frozen_models`.
        limit: bound of the absolute advantage, nats.
    """

    limit: float = 20.0

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise ValueError(f"span_advantage.limit must be > 0, got {self.limit}")

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        policy: Any = ctx.policy
        prompts, completions = split_rows(batch)
        special = set(policy.tokenizer.all_special_ids)
        texts = [policy.tokenizer.decode(prompt, skip_special_tokens=True) for prompt in prompts]
        # the tokens of text before the first special token, which is the end of a completion
        lengths = [next((t for t, i in enumerate(ids) if i in special), len(ids)) for ids in completions]
        tokens = [policy.token_texts(ids[:length]) for ids, length in zip(completions, lengths)]
        scored = self.model_of(ctx).score_texts([text + "".join(part) for text, part in zip(texts, tokens)])
        advantages = torch.zeros(batch["action"].shape)
        for n, (theirs, logprobs) in enumerate(scored):
            ours = batch["behavior_logprobs"][n].tolist()
            for (low, high), value in span_ratios(tokens[n], ours, theirs, logprobs, texts[n]):
                advantages[n, low:high] = min(max(value, -self.limit), self.limit)
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantages, 0.0))


def span_ratios(
    tokens: Sequence[str],
    logprobs: Sequence[float],
    teacher_tokens: Sequence[str],
    teacher_logprobs: Sequence[float | None],
    prompt: str,
) -> list[tuple[tuple[int, int], float]]:
    """Return the student's tokens [low, high) of each span, and log p_teacher(span) - log p_student(span) in nats.

    A beginning of the teacher's tokens that is not of the text, such as its own first token, is left out. A row whose
    tokens do not spell the text, since the server writes parts of a character in another way, has no spans.

    Args:
        tokens, logprobs: of the student's completion.
        teacher_tokens, teacher_logprobs: of prompt and completion.
        prompt: text before the completion.
    """
    whole = prompt + "".join(tokens)
    extra = "".join(teacher_tokens).removesuffix(whole)
    skip = next((i for i in range(len(teacher_tokens)) if "".join(teacher_tokens[:i]) == extra), 0)
    try:
        spans = align_spans(tokens, teacher_tokens[skip:], len(prompt))
    except ValueError:
        return []
    ratios = []
    for span in spans:
        theirs = teacher_logprobs[skip + span.teacher[0] : skip + span.teacher[1]]
        if all(value is not None for value in theirs):
            ratios.append((span.student, math.fsum(theirs) - math.fsum(logprobs[slice(*span.student)])))  # type: ignore[arg-type]
    return ratios


def split_rows(batch: Batch) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of the prompt of each row, and those of its choices up to the last one that is scored.

    Raises:
        ValueError: the prompts have images.
    """
    inputs = {name for name in batch if name.startswith("obs.")}
    if further := sorted(inputs - {"obs.input_ids", "obs.attention_mask"}):
        raise ValueError(f"a teacher on a server reads text alone, and the prompts have {further}; give it a path")
    prompts = [row[mask.bool()].tolist() for row, mask in zip(batch["obs.input_ids"], batch["obs.attention_mask"])]
    ends: Tensor = last_inside(batch.score_mask)
    return prompts, [row[:end].tolist() for row, end in zip(batch["action"], ends.tolist())]
