"""LDC's controller: levels of the strengths of each sentence by scorers, their cross-entropy, and sentence by sentence.

- labels of a text's sentences, by the ratings of a scorer: `SentenceLevels`, `find_level`
- the loss of the GRU: `StrengthLoss`
- texts whose strengths the GRU predicts before each sentence: `ControlledSentences`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Prompt, Request, Turn
from mmrl.methods.generation.ldc.dials import HALF, MIDDLE, set_strengths
from mmrl.methods.generation.ldc.policy import SteeredPolicy, find_starts
from mmrl.objectives.objective import Term
from mmrl.rollouts.base import Rollout, turn_seed
from mmrl.transforms.base import EpisodeTransform

register_columns(
    {
        "strength_levels": Column(
            "[N, T, K]",
            "id",
            "LDC: level of each strength of the sentence that begins with the choice; -1 elsewhere",
            pad=-1,
        )
    }
)


def find_level(rating: float) -> int:
    """The level of a rating from 1 to 10 by thirds of the scale: 0 below 4, 2 from 7 on, else 1."""
    return 0 if rating < MIDDLE - HALF / 3 else 2 if rating >= MIDDLE + HALF / 3 else 1


@dataclass(frozen=True)
class SentenceLevels(EpisodeTransform):
    """Rate each sentence of a text with a scorer, and write the levels of its ratings where it begins.

    Args:
        model: name of a `ScoringPolicy` in `model.frozen_models`.
        batch_size: sentences per forward pass.
    """

    model: str = "scorer"
    batch_size: int = 256

    def __post_init__(self) -> None:
        check_at_least(1, "sentence_levels", batch_size=self.batch_size)

    def writes(self) -> frozenset[str]:
        return frozenset({"strength_levels"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if not episodes:
            return []
        if self.model not in ctx.models:
            raise ConfigError(f"sentence_levels.model={self.model!r} is no model of the run; name a scorer there")
        policy = require_steered(ctx)
        # the sentences of all texts, each with its episode and the number of its first token
        places, raws = [], []
        for number, episode in enumerate(episodes):
            ids = episode.turns[0].completion.action
            starts = find_starts(ids[None], policy.boundary)[0].nonzero()[:, 0].tolist()
            for start, end in zip(starts, [*starts[1:], len(ids)]):
                places.append((number, start))
                raws.append(
                    {
                        "messages": list(episode.prompt.messages),
                        "answer": policy.decode(ids[start:end].tolist()).strip(),
                    }
                )
        labels = [torch.full((len(e.turns[0].completion.action), policy.dimensions), -1) for e in episodes]
        for (number, start), ratings in zip(places, self._rate(raws, ctx)):
            if len(ratings) != policy.dimensions:
                raise ConfigError(
                    f"sentence_levels: model.frozen_models.{self.model} has {len(ratings)} heads, and "
                    f"policy.dimensions is {policy.dimensions}; make them equal"
                )
            labels[number][start] = torch.tensor([find_level(rating) for rating in ratings])
        return [
            replace(episode, turns=[episode.turns[0].with_columns(strength_levels=levels)])
            for episode, levels in zip(episodes, labels)
        ]

    @torch.no_grad()
    def _rate(self, raws: Sequence[dict[str, Any]], ctx: Context) -> list[list[float]]:
        """Ratings of the scorer's heads for answers."""
        scorer: Any = ctx.models[self.model]
        out: list[list[float]] = []
        for start in range(0, len(raws), self.batch_size):
            rows = scorer.collate([scorer.encode(raw) for raw in raws[start : start + self.batch_size]])
            out += scorer.head_scores({name: column.to(scorer.device) for name, column in rows.items()}).tolist()
        return out


@dataclass(frozen=True)
class StrengthLoss(Term):
    """Cross-entropy of the controller's levels where sentences begin, in nats: the mean over dimensions, [N, T]."""

    def needs(self) -> frozenset[str]:
        return frozenset({"strength_logits"})

    def reads(self) -> frozenset[str]:
        return frozenset({"strength_levels"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return self._each(out, batch).mean(-1)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """right: share of the levels that are predicted, 0 where no sentence begins; begins: whether one does."""
        levels = batch["strength_levels"]
        right = (out.extra["strength_logits"].argmax(-1) == levels) & (levels >= 0)
        return {"right": right.float().mean(-1), "begins": (levels >= 0).float().mean(-1)}

    def _each(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """[N, T, K], 0 where no sentence begins."""
        logits, levels = out.extra["strength_logits"], batch["strength_levels"]
        loss = cross_entropy(logits.flatten(0, 2), levels.clamp(min=0).flatten(), reduction="none").view_as(levels)
        return torch.where(levels >= 0, loss, 0.0)


class ControlledSentences(Rollout):
    """Write texts sentence by sentence, each with the strengths that the controller predicts from those before it.

    The strengths of a text's sentences are `strengths_by_sentence` of its info. What is written is measured, not
    learned from, since a row has one vector of strengths: its choices are no choices of the policy.

    Args:
        sentences: most sentences of a text.
    """

    def __init__(self, sentences: int = 3):
        check_at_least(1, "rollout", sentences=sentences)
        self.sentences = sentences

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        policy = require_steered(ctx)
        boundary = policy.decode([policy.boundary])
        sampling = replace(ctx.sampling, stop=(*ctx.sampling.stop, boundary))
        texts = [_Text(prompt, slot, i) for slot, prompt in prompts for i in ctx.sample_indices(slot)]
        for number in range(self.sentences):
            going = [text for text in texts if text.goes_on]
            for text in going:
                observation = policy.encode(text.prompt.observation)
                text.strengths.append(policy.predict_strengths(observation, text.ids).tolist())
            requests = [text.request(turn_seed(text.slot, text.index, ctx, number), ctx) for text in going]
            for text, done in zip(going, ctx.engine.sample(requests, sampling) if requests else ()):
                text.add(done, policy.boundary, ctx.sampling.max_tokens)
        return [text.build_episode(policy) for text in texts]


class _Text:
    """A text that is written, and the strengths of its sentences so far."""

    def __init__(self, prompt: Prompt, slot: int, index: int):
        self.prompt, self.slot, self.index = prompt, slot, index
        self.ids = torch.zeros(0, dtype=torch.long)
        self.strengths: list[list[float]] = []
        self.last: Completion | None = None
        self.goes_on = True

    def request(self, seed: int, ctx: Context) -> Request:
        """The next sentence."""
        raw = set_strengths(self.prompt, self.strengths[-1]).observation
        return Request(raw, seed, prefix=self.ids if len(self.ids) else None)

    def add(self, done: Completion, boundary: int, limit: int) -> None:
        """Add a sentence; the text goes on behind a boundary."""
        self.ids, self.last = torch.cat([self.ids, done.action]), done
        self.goes_on = int(done.action[-1]) == boundary and len(self.ids) < limit

    def build_episode(self, policy: SteeredPolicy) -> Episode:
        """The whole text as one completion of the prompt."""
        assert self.last is not None
        nothing = torch.zeros(len(self.ids))
        whole = replace(
            self.last,
            observation=policy.encode(self.prompt.observation),
            action=self.ids,
            behavior_logprobs=nothing,
            action_mask=nothing.bool(),
            output=policy.decode(self.ids.tolist()),
        )
        info = {"strengths_by_sentence": self.strengths}
        return Episode(self.prompt, self.slot, self.index, [Turn(whole)], ended=self.last.ended, info=info)


def require_steered(ctx: Context) -> SteeredPolicy:
    """The policy of a context, which must be a steered one.

    Raises:
        ConfigError: it is another one.
    """
    if not isinstance(ctx.policy, SteeredPolicy):
        raise ConfigError(
            f"{type(ctx.policy).__name__} has no strengths; set "
            "policy._target_=mmrl.methods.generation.ldc.policy.SteeredPolicy"
        )
    return ctx.policy
