"""Goal-conditioned reward model while answers are sampled: discard beginnings that leave the goal, and steer a beam.

Learning Goal-Conditioned Representations for Language Reward Models, 2024, arXiv:2407.13887.

- Q = cos(h_t, goal) of the beginning of an answer: `GoalScoringPolicy.score_beginnings`
- filtering: an answer ends as soon as its Q is below a threshold, and its further tokens are saved: `GoalFilter`
- majority voting among the answers that were not discarded: `KeptVote`
- guided decoding: of the continuations of all beams those with the highest Q go on: `GoalBeam`
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.errors import ConfigError, check_at_least, check_interval
from mmrl.core.rng import advance_seed, derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Turn
from mmrl.evaluation.metrics.vote import FilteredVote
from mmrl.methods.preferences.goal_conditioned.reward_model import GoalScoringPolicy
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.joined import join, with_versions


@dataclass
class Beginning:
    """An answer so far.

    Attributes:
        slot: of the prompt.
        prompt: that is answered.
        index: of the sample, or of the beam.
        part: its choices; None before the first one.
        quality: Q of its last token; 0 before it was measured.
        discarded: whether it was ended by its Q.
    """

    slot: int
    prompt: Prompt
    index: int
    part: Completion | None = None
    quality: float = 0.0
    discarded: bool = False

    @property
    def tokens(self) -> int:
        return 0 if self.part is None else len(self.part.action)

    def runs(self, max_tokens: int) -> bool:
        """Whether it has neither ended nor been discarded."""
        return not self.discarded and (self.part is None or (self.part.ended == "length" and self.tokens < max_tokens))


class _Segments(Rollout):
    """Base class of rollouts that look at answers between segments, with a frozen model that knows the goal.

    Args:
        segment_tokens: tokens between two looks.
        model: its name in `model.frozen_models`, a `GoalScoringPolicy`.
        batch_size: beginnings per forward pass of it.
    """

    def __init__(self, segment_tokens: int = 16, model: str = "reward_model", batch_size: int = 64):
        check_at_least(1, "rollout", segment_tokens=segment_tokens, batch_size=batch_size)
        self.segment_tokens, self.model, self.batch_size = segment_tokens, model, batch_size

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"choice_versions"})

    @abstractmethod
    def look(self, answers: Sequence[Beginning], ctx: Context) -> Sequence[Beginning]:
        """Measure answers after a segment, and return those that are still candidates, ended ones among them."""

    def extend(self, answers: Sequence[Beginning], seeds: Sequence[int], ctx: Context) -> list[Beginning]:
        """Continue running answers by a segment, each with the draws of its seed."""
        step = min(self.segment_tokens, ctx.sampling.max_tokens - answers[0].tokens)  # all have the same length
        requests = [
            Request(
                text_observation(answer.prompt),
                seed,
                prefix=None if answer.part is None else answer.part.action,
                prompt_id=answer.slot,
            )
            for answer, seed in zip(answers, seeds)
        ]
        done = ctx.engine.sample(requests, replace(ctx.sampling, max_tokens=step))
        return [replace(answer, part=_append(answer.part, more, ctx)) for answer, more in zip(answers, done)]

    def measure(self, answers: Sequence[Beginning], ctx: Context) -> None:
        """Write Q into answers: of the end of those that have ended, and of the last token of the others."""
        scorer = dict(ctx.models.items()).get(self.model)  # a ModuleDict has no get
        if not isinstance(scorer, GoalScoringPolicy):
            raise ConfigError(
                f"rollout.model={self.model!r} is no model of the run that knows a goal; add a GoalScoringPolicy of "
                f"{GoalScoringPolicy.__module__} as model.frozen_models.{self.model}, with the path of its folder"
            )
        sampled = [(answer, answer.part) for answer in answers if answer.part is not None]
        for start in range(0, len(sampled), self.batch_size):
            rows = sampled[start : start + self.batch_size]
            texts = [{"messages": list(a.prompt.messages), "answer": str(part.output)} for a, part in rows]
            qualities = scorer.score_beginnings(texts, [part.ended == "done" for _, part in rows])
            for (answer, _), quality in zip(rows, qualities):
                answer.quality = quality

    def refuse_sampling(self, ctx: Context) -> None:
        """Refuse what reads a completion across its segments."""
        if ctx.sampling.stop or ctx.sampling.annealing is not None:
            raise ConfigError(
                "rollout: answers are sampled in segments, which sampling.stop and sampling.annealing do not know; "
                "set both to null"
            )


def _append(part: Completion | None, more: Completion, ctx: Context) -> Completion:
    """The completion with a further segment."""
    more = with_versions(more)
    if part is None:
        return more
    if more.ended == "error":
        return replace(part, ended="error")
    done = join(part, more)
    return replace(done, output=ctx.policy.decode(done.action.tolist()))


class GoalFilter(_Segments):
    """Single-turn rollout that discards an answer as soon as its Q falls below a threshold.

    A discarded answer ends as one that was cut by its length, so that a verifier calls it wrong; others are what
    `SingleTurn` draws. Events of an episode: `discarded`, and `unsampled`, the tokens up to `sampling.max_tokens` that
    were saved at most. `KeptVote` votes among the others.
    Source: Goal-Conditioned Representations, 2024, filtering, arXiv:2407.13887.

    Args:
        threshold: smallest Q of an answer that goes on, in [-1, 1].
        first_look: tokens before which no answer is discarded.
        options: of the segments.
    """

    def __init__(self, threshold: float = 0.0, first_look: int = 0, **options: Any):
        super().__init__(**options)
        check_interval("rollout", "[-1, 1]", threshold=threshold)
        check_at_least(0, "rollout", first_look=first_look)
        self.threshold, self.first_look = threshold, first_look

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self.refuse_sampling(ctx)
        answers = [Beginning(slot, prompt, index) for slot, prompt in prompts for index in ctx.sample_indices(slot)]
        limit = ctx.sampling.max_tokens
        while running := [i for i, answer in enumerate(answers) if answer.runs(limit)]:
            some = [answers[i] for i in running]
            seeds = [advance_seed(turn_seed(a.slot, a.index, ctx), a.tokens) for a in some]
            for i, answer in zip(running, self.look(self.extend(some, seeds, ctx), ctx)):
                answers[i] = answer
        return [self._end(answer, limit) for answer in answers]

    def look(self, answers: Sequence[Beginning], ctx: Context) -> Sequence[Beginning]:
        self.measure(answers, ctx)
        for answer in answers:
            goes_on = answer.runs(ctx.sampling.max_tokens) and answer.tokens >= self.first_look
            answer.discarded = goes_on and answer.quality < self.threshold
        return answers

    def _end(self, answer: Beginning, limit: int) -> Episode:
        counts = {"discarded": int(answer.discarded), "unsampled": (limit - answer.tokens) * int(answer.discarded)}
        info = {"counts": counts, "kept": float(not answer.discarded), "quality": answer.quality}
        turns = [Turn(answer.part)] if answer.part is not None else []
        ended = answer.part.ended if answer.part is not None else "error"
        return Episode(answer.prompt, answer.slot, answer.index, turns, ended=ended, info=info)


class GoalBeam(_Segments):
    """Guided decoding: of the continuations of all beams of a prompt, those with the highest Q go on.

    An ended answer stays a candidate with the Q of its end. The episodes of a prompt are its best beams, the best one
    with the first index. They are no samples of the policy, so that importance ratios are biased: it is a rollout for
    evaluation. Source: Goal-Conditioned Representations, 2024, guided decoding, arXiv:2407.13887.

    Args:
        beams: that go on after each segment; not fewer than the episodes of a prompt.
        continuations: of each beam.
        options: of the segments.
    """

    def __init__(self, beams: int = 4, continuations: int = 4, **options: Any):
        super().__init__(**options)
        check_at_least(1, "rollout", beams=beams, continuations=continuations)
        self.beams, self.continuations = beams, continuations

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self.refuse_sampling(ctx)
        most = max((len(ctx.sample_indices(slot)) for slot, _ in prompts), default=0)
        if most > self.beams:
            raise ConfigError(
                f"rollout.beams={self.beams} gives fewer answers than the {most} of a prompt; raise it, or lower "
                "data.group_size and data.evaluation.num_samples"
            )
        # one empty beginning for each beam of a prompt
        answers = [Beginning(slot, prompt, beam) for slot, prompt in prompts for beam in range(self.beams)]
        limit = ctx.sampling.max_tokens
        while running := [answer for answer in answers if answer.runs(limit)]:
            ended = [answer for answer in answers if not answer.runs(limit)]
            copies = [replace(answer) for answer in running for _ in range(self.continuations)]
            # the tokens so far are one more key of the draws: copies of a beam differ, and so do its segments
            seeds = [
                derive_seed(turn_seed(a.slot, a.index, ctx), "beam", a.tokens, n % self.continuations)
                for n, a in enumerate(copies)
            ]
            answers = list(self.look([*ended, *self.extend(copies, seeds, ctx)], ctx))
        by_slot = {slot: [a for a in answers if a.slot == slot] for slot, _ in prompts}
        return [
            self._end(by_slot[slot][rank % len(by_slot[slot])], index)
            for slot, _ in prompts
            for rank, index in enumerate(ctx.sample_indices(slot))
        ]

    def look(self, answers: Sequence[Beginning], ctx: Context) -> Sequence[Beginning]:
        """The `beams` distinct answers with the highest Q of each prompt, numbered from the best."""
        self.measure(answers, ctx)
        distinct: dict[int, dict[tuple[int, ...], Beginning]] = {}
        for answer in sorted(answers, key=lambda a: -a.quality):
            ids = tuple(answer.part.action.tolist()) if answer.part is not None else ()
            distinct.setdefault(answer.slot, {}).setdefault(ids, answer)
        best = {slot: list(found.values())[: self.beams] for slot, found in distinct.items()}
        return [replace(answer, index=rank) for found in best.values() for rank, answer in enumerate(found)]

    @staticmethod
    def _end(answer: Beginning, index: int) -> Episode:
        assert answer.part is not None
        info = {"kept": 1.0, "quality": answer.quality}
        return Episode(answer.prompt, answer.slot, index, [Turn(answer.part)], ended=answer.part.ended, info=info)


@dataclass(frozen=True)
class KeptVote(FilteredVote):
    """Share of problems whose most frequent answer among those that `GoalFilter` did not discard is right.

    `majority` is that of all answers, of which discarded ones are beginnings. Where all were discarded, all vote.
    Source: Goal-Conditioned Representations, 2024, filtering, arXiv:2407.13887.

    Args:
        score_name: name of a score of 0 or 1, which says what is right.
    """

    def _accepts(self, episode: Episode) -> bool:
        return bool(episode.info.get("kept", 1.0))
