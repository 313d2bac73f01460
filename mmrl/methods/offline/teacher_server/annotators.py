"""Columns of a teacher on a server: its likely tokens at every choice, and advantages by spans of text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.types import Context

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

    def model_of(self, ctx: Context) -> Any:
        """Return the teacher, a `ServerTeacher`; refuse a model that is in the process."""
        model = ctx.models[self.teacher]
        if not hasattr(model, "span_advantages"):
            raise ValueError(
                f"model.frozen_models.{self.teacher} is a {type(model).__name__} in the process, which recipe=gkd "
                "reads; this method needs teacher.url=http://HOST:PORT"
            )
        return model

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Metrics over all ranks: requests; retried ones; prompt tokens, which are paid for; seconds a request took."""
        counts = self.model_of(ctx).client.take_counts()
        total = {name: math.fsum(each[name] for each in ctx.collector.gather([counts])) for name in sorted(counts)}
        total["seconds"] /= max(total["requests"], 1.0)
        return total


@dataclass(frozen=True)
class TeacherTopLogprobs(ServerAnnotator):
    """The teacher's most likely tokens at every choice, for a teacher of the policy's tokenizer."""

    def writes(self) -> frozenset[str]:
        return frozenset({"teacher_ids", "teacher_logprobs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        ids, logprobs = self.model_of(ctx).top_logprobs(batch)
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
        advantages = self.model_of(ctx).span_advantages(batch, ctx.policy).clamp(-self.limit, self.limit)
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantages, 0.0))
