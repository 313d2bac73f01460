"""A judge that is the policy itself, or a frozen model of the run, asked through the run's engine."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Request, Sampling
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import OptionIds, Question, Reply


class EngineJudge(LanguageJudge):
    """Judge: a model that the run's engine samples already; its replies are greedy.

    Verdicts of the policy are those of the weights that sampled the answers, so they change as it learns. A question
    with options is no sample: the engine scores their tokens, which `LocalEngine` alone can.

    Args:
        model: its name in `model.frozen_models`; None for the policy itself.
        max_tokens: of a reply.
    """

    sees_images = True
    of_run = True

    def __init__(self, model: str | None = None, max_tokens: int = 256):
        super().__init__()
        check_at_least(1, "reward.judge", max_tokens=max_tokens)
        self.model, self.max_tokens = model, max_tokens
        self.ctx: Context | None = None
        self._ids: list[OptionIds] = []  # of the model, once it was needed; the judges of all contexts share it

    def sampled_models(self) -> frozenset[str]:
        return frozenset() if self.model is None else frozenset({self.model})

    def bind(self, ctx: Context) -> EngineJudge:
        """Return the judge that asks this context's engine."""
        bound = copy.copy(self)
        bound.ctx = ctx
        return bound

    def reply(self, questions: Sequence[Question]) -> list[Reply | NoAnswer]:
        if self.ctx is None:
            raise ConfigError("reward.judge is a model of a run, and is asked outside of its rollouts")
        written = [i for i, question in enumerate(questions) if not question.options]
        scored = [i for i, question in enumerate(questions) if question.options]
        replies: dict[int, Reply | NoAnswer] = {}
        replies.update(zip(written, self._write([questions[i] for i in written], self.ctx)))
        replies.update(zip(scored, self._score([questions[i] for i in scored], self.ctx)))
        return [replies[i] for i in range(len(questions))]

    def _write(self, questions: Sequence[Question], ctx: Context) -> list[Reply]:
        """Sample greedy replies."""
        key = ("judge", ctx.seed, ctx.purpose, ctx.iteration, ctx.rank)
        requests = [
            Request(_observe(question), derive_seed(*key, n), model=self.model) for n, question in enumerate(questions)
        ]
        sampling = Sampling(decode="argmax", max_tokens=self.max_tokens)
        done = ctx.engine.sample(requests, sampling) if requests else []
        return [Reply(str(c.output), len(c.observation.get("input_ids", ())), len(c.action)) for c in done]

    def _score(self, questions: Sequence[Question], ctx: Context) -> list[Reply]:
        """Score every token that is one of a question's options, as the first one of a reply."""
        if not questions:
            return []
        ids = self._index_tokens(ctx)
        tokens = [{option: ids.find(option) for option in question.options} for question in questions]
        flat = [[token for ids in by_option.values() for token in ids] for by_option in tokens]
        scores = ctx.engine.score_first([_observe(question) for question in questions], flat, self.model)
        replies = []
        for by_option, values in zip(tokens, scores):
            rest = iter(values)
            sums = {option: [next(rest) for _ in ids] for option, ids in by_option.items()}
            replies.append(Reply("", options={option: _logsumexp(part) for option, part in sums.items()}))
        return replies

    def _index_tokens(self, ctx: Context) -> OptionIds:
        if not self._ids:
            policy: Any = ctx.policy if self.model is None else ctx.models[self.model]
            owner = "the policy" if self.model is None else f"model.frozen_models.{self.model}"
            self._ids.append(OptionIds(policy.tokenizer, "reward.judge", owner))
        return self._ids[0]


def _observe(question: Question) -> dict[str, Any]:
    return {"messages": ({"role": "user", "content": question.text},), "images": question.images}


def _logsumexp(values: Sequence[float]) -> float:
    return torch.tensor(values, dtype=torch.float64).logsumexp(dim=0).item()
