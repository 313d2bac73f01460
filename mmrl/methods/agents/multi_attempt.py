"""Multi-attempt RL: a random number of attempts at one problem, with word of each wrong one, as one episode.

Learning from Failures in Multi-Attempt Reinforcement Learning, 2025, arXiv:2503.04808.

- attempts with feedback and their reward: `MultiAttempt`, `attempts_reward`
- demonstrated attempts, for the start: `MultiAttemptDemonstrations`
- accuracy over the number of allowed attempts: `AttemptsCurve`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

import torch

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.rewards.extract import build_extractor
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstration
from mmrl.rollouts.text.transcript import Transcript


def attempts_reward(outcomes: Sequence[str]) -> float:
    """Reward of an episode: 1 if its last attempt is right, else -0.5 if any gave an answer, else -1.

    Args:
        outcomes: of the attempts, "right", "wrong" or "none" where there is no answer.
    """
    if outcomes[-1] == "right":
        return 1.0
    return -0.5 if "wrong" in outcomes else -1.0


@dataclass(eq=False)
class Play:
    """An episode with its transcript, the number of attempts that it may make and what came of them."""

    episode: Episode
    script: Transcript
    allowed: int
    outcomes: list[str] = field(default_factory=list)
    last: Completion | None = None

    @property
    def over(self) -> bool:
        if self.episode.ended == "error" or "right" in self.outcomes[-1:]:
            return True
        cut = self.episode.ended != "done" and self.outcomes[-1:] == ["none"]  # nothing to say of it
        return cut or len(self.outcomes) >= self.allowed


class MultiAttempt(Rollout):
    """Attempts at a problem until one is right or none is left; an episode is one row, in which feedback is masked.

    An attempt that is cut off before it gives an answer is the last one.

    The reward of the row is that of `attempts_reward`. `info["outcomes"]` lists what came of the attempts, and
    `info["allowed"]` is their greatest number, drawn anew for every prompt.

    Args:
        attempts: least and greatest number of allowed attempts, which is drawn uniformly.
        announcement: system message before the prompt, where {allowed} stands for that number; empty for none.
        feedback: text after a wrong attempt, where {left} stands for the number of attempts that are left.
        extract: how the answer of an attempt is found, such as "boxed"; an attempt without one is no answer.
        score_name: score of the task that is 1 for a right answer.
    """

    def __init__(
        self,
        attempts: Sequence[int] = (1, 5),
        announcement: str = "{allowed} attempts",
        feedback: str = "\nwrong, {left} left\n",
        extract: str | dict[str, Any] = "text",
        score_name: str = "exact",
    ):
        if len(attempts) != 2 or not 1 <= attempts[0] <= attempts[1]:
            raise ValueError(
                f"rollout.attempts={list(attempts)} has to be the least and the greatest number of attempts, "
                "as in [1, 5]"
            )
        if not feedback:
            raise ValueError(
                "rollout.feedback is empty: an attempt that is wrong needs an answer; set rollout.feedback"
            )
        self.attempts, self.announcement, self.feedback = tuple(attempts), announcement, feedback
        self.extractor, self.score_name = build_extractor(extract, "rollout.extract"), score_name

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        plays = [self._begin(slot, prompt, i, ctx) for slot, prompt in prompts for i in ctx.sample_indices(slot)]
        running = plays
        while running:
            for play, done in zip(running, self.sample(running, ctx)):
                self._read(play, done, ctx)
            running = [play for play in running if not play.over]
            for play in running:
                left = str(play.allowed - len(play.outcomes))
                play.script.read(ctx.policy.tokenize(self.feedback.replace("{left}", left)))
            ctx.progress("rollout", len(plays) - len(running), len(plays))
        return [self._end(play) for play in plays]

    def sample(self, plays: Sequence[Play], ctx: Context) -> list[Completion]:
        """The next attempt of each."""
        requests = []
        for play in plays:
            seed = turn_seed(play.episode.group, play.episode.sample_index, ctx, len(play.outcomes))
            requests.append(play.script.request(seed))
        return ctx.engine.sample(requests, ctx.sampling)

    def _begin(self, slot: int, prompt: Prompt, sample_index: int, ctx: Context) -> Play:
        rng = derive_rng("attempts", ctx.seed, ctx.purpose, ctx.iteration, slot)
        allowed = int(rng.integers(self.attempts[0], self.attempts[1] + 1))
        raw = dict(text_observation(prompt))
        if self.announcement:
            stated = {"role": "system", "content": self.announcement.replace("{allowed}", str(allowed))}
            raw["messages"] = (stated, *raw["messages"])
        return Play(Episode(prompt, group=slot, sample_index=sample_index), Transcript(raw, slot), allowed)

    def _read(self, play: Play, done: Completion, ctx: Context) -> None:
        """Append an attempt and judge it alone."""
        play.script.write(done)
        play.last = done
        play.episode.ended = done.ended
        if done.ended == "error":
            play.episode.info["error"] = "the engine gave no completion for an attempt"
            return
        scores = ctx.task.score(replace(play.episode, turns=[Turn(done)], info={}))
        if self.score_name not in scores:
            raise KeyError(
                f"rollout.score_name={self.score_name!r}: task {ctx.task.name!r} scores {sorted(scores)} at "
                f"{play.episode.prompt.key!r}; name one that is 1 for a right answer"
            )
        answered = bool(self.extractor(str(done.output)))
        play.outcomes.append("right" if scores[self.score_name] == 1 else "wrong" if answered else "none")

    def _end(self, play: Play) -> Episode:
        assert play.last is not None
        reward = attempts_reward(play.outcomes) if play.episode.ended != "error" else 0.0
        play.episode.turns = [Turn(play.script.completion(play.last.output, play.last.ended), reward)]
        play.episode.info |= {"outcomes": play.outcomes, "allowed": play.allowed}
        return play.episode


class MultiAttemptDemonstrations(MultiAttempt):
    """Demonstrated attempts: some answers of other problems, which are not trained on, and then the right one.

    Args:
        wrong: probability that an attempt before the last allowed one is another problem's answer, in [0, 1].
        options: those of `MultiAttempt`.
    """

    samples = False

    def __init__(self, wrong: float = 0.5, **options: Any):
        super().__init__(**options)
        check_fraction("rollout", wrong=wrong)
        self.wrong = wrong

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, replace(ctx, group_size=1))
        return [replace(e, source="demo", turns=add_row_seeds(e.turns, e.group, ctx)) for e in episodes]

    def sample(self, plays: Sequence[Play], ctx: Context) -> list[Completion]:
        return [self._demonstrate(play, ctx) for play in plays]

    def _demonstrate(self, play: Play, ctx: Context) -> Completion:
        number, prompt = len(play.outcomes), play.episode.prompt
        rng = derive_rng("attempt", ctx.seed, ctx.purpose, ctx.iteration, play.episode.group, number)
        answer = ctx.task.demonstrate(prompt.index)
        other = ctx.task.demonstrate(int(rng.integers(len(ctx.task))))
        if number == play.allowed - 1 or other == answer or rng.random() >= self.wrong:
            return demonstration(play.script.raw, answer, ctx)
        attempt = demonstration(play.script.raw, other, ctx)
        return replace(attempt, action_mask=torch.zeros_like(attempt.action_mask))


@dataclass(frozen=True)
class AttemptsCurve(Evaluator):
    """Share of the finished episodes that are right within 1, 2, ... of the allowed attempts.

    at_1, at_2, ...: these shares; gain: what the last of them has more than the first; tries: mean number of attempts.

    Args:
        attempts: greatest number of attempts, the least that each episode has to have been allowed.
    """

    attempts: int = 5

    def __post_init__(self) -> None:
        check_at_least(1, "evaluator", attempts=self.attempts)

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        for episode in valid:
            if episode.info.get("allowed", 0) < self.attempts:
                raise KeyError(
                    f"the episode of {episode.prompt.key!r} was not allowed {self.attempts} attempts; play it with "
                    f"evaluation.rollout.attempts=[{self.attempts}, {self.attempts}] and rollout=multi_attempt"
                )
        listed = [episode.info["outcomes"] for episode in valid]
        n = len(listed)

        def share(k: int) -> float:
            return sum("right" in outcomes[:k] for outcomes in listed) / n if n else nan

        curve = {f"at_{k}": share(k) for k in range(1, self.attempts + 1)}
        return {
            **curve,
            "gain": share(self.attempts) - share(1),
            "tries": sum(map(len, listed)) / n if n else nan,
            "n": float(n),
            "errors": count_errors(episodes),
        }
