"""Absolute Zero: self-play in which one policy proposes and solves problems, and an executor verifies both.

Absolute Zero: Reinforced Self-play Reasoning with Zero Data, 2025, arXiv:2505.03335.

- the proposer's reward (equation 4): `learnability`
- algorithm 1, equations 5 and 6: `SelfPlay`
- advantages per role and kind of problem (equation 8): `mmrl.annotators.role_advantage.RoleAdvantage`
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mmrl.core.errors import check_at_least
from mmrl.core.games import Game, GameProblem, Verdict
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Turn
from mmrl.rollouts.base import Rollout


def learnability(solved: float) -> float:
    """Learnability reward of a proposal with success rate a: 1 - a, and 0 where a = 0.

    Source: Zhao et al., "Absolute Zero", 2025, arXiv:2505.03335, equation 4.
    """
    if not 0 <= solved <= 1:
        raise ValueError(f"the success rate must lie between 0 and 1, got {solved}")
    return 0.0 if solved == 0 else 1.0 - solved


log = logging.getLogger(__name__)


BROKEN, UNSOUND = -1.0, -0.5


class SelfPlay(Rollout):
    """Rollout of self-play: even slots propose problems, odd slots solve them, and kinds of problems alternate.

    Of the prompts only the slot numbers are used.

    A proposal in view of `references` known problems is checked by execution; a sound one is tried by the policy
    `trials` times, and earns what `learnability` says of the share a that succeeds. A solution earns 1 when execution
    says that it is right. What is of the asked form but unsound or wrong earns -0.5, what is not -1. Rows of one role
    and kind share a `baseline_group`. Sound proposals join the known problems after the iteration on all processes;
    solvers get the newest ones first.

    Where the executor fails, the episode is an error and earns nothing.

    Source: Zhao et al., "Absolute Zero", 2025, arXiv:2505.03335, algorithm 1 and equations 4 to 6.

    Args:
        trials: solutions sampled for a proposed problem; they are not trained on.
        references: known problems that a proposer is shown.
        proposing: False plays solvers alone, on the problems known at the beginning.
        max_problems: per kind, the newest known problems that are kept.
    """

    def __init__(self, trials: int = 8, references: int = 6, proposing: bool = True, max_problems: int = 4096):
        check_at_least(1, "rollout", trials=trials, references=references, max_problems=max_problems)
        self.trials, self.references, self.proposing, self.max_problems = trials, references, proposing, max_problems
        self.known: dict[str, list[GameProblem]] = {}
        self._early: list[GameProblem] = []  # found by others before this process had prompts

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"baseline_group"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        game: Any = ctx.task
        if not isinstance(game, Game):
            raise ValueError(f"task {game.name!r} is no game: its problems cannot be proposed; use task=programs")
        for kind in game.kinds:
            self.known.setdefault(kind, game.seeds(kind))
        self._add_problems(self._early)
        self._early = []
        plays = [
            self._begin(slot, sample_index, game, ctx)
            for slot, _ in prompts
            for sample_index in ctx.sample_indices(slot)
        ]
        requests = [Request(p.episode.prompt.observation, p.seed(ctx)) for p in plays]
        for play, done in zip(plays, ctx.engine.sample(requests, ctx.sampling)):
            play.wrote(done, game.kinds)
        fine = [play for play in plays if play.episode.ended != "error"]
        self._judge_solvers([play for play in fine if play.problem is not None], game)
        self._judge_proposers([play for play in fine if play.problem is None], game, ctx)
        return [play.episode for play in plays]

    def _begin(self, slot: int, sample_index: int, game: Game, ctx: Context) -> _Play:
        kind = game.kinds[(slot // 2 if self.proposing else slot) % len(game.kinds)]
        rng = derive_rng(ctx.seed, ctx.purpose, "self-play", ctx.iteration, slot)
        problems, key = self.known[kind], f"{game.name}/play/{slot}"
        if self.proposing and slot % 2 == 0:
            references = [problems[i] for i in rng.permutation(len(problems))[: self.references]]
            return _Play(Episode(game.ask(kind, references, key), slot, sample_index, role="proposer"), kind)
        # the newest first, each once before any again
        place = (slot // 2 // len(game.kinds)) if self.proposing else int(rng.integers(len(problems)))
        problem = problems[-1 - place % len(problems)]
        return _Play(Episode(game.pose(problem, key), slot, sample_index, role="solver"), kind, problem)

    def _judge_solvers(self, plays: Sequence[_Play], game: Game) -> None:
        pairs = [(play.problem, str(play.episode.output)) for play in plays if play.problem is not None]
        for play, verdict in zip(plays, game.judge(pairs)):
            play.set_verdict(verdict, 1.0 if verdict.outcome == "right" else _below(verdict))

    def _judge_proposers(self, plays: Sequence[_Play], game: Game, ctx: Context) -> None:
        verdicts = game.check([(play.kind, play.episode.prompt, str(play.episode.output)) for play in plays])
        sound = [(play, verdict.problem) for play, verdict in zip(plays, verdicts) if verdict.problem is not None]
        shares = self._measure_rates(sound, game, ctx)
        for play, verdict in zip(plays, verdicts):
            a = shares.get(play.key)
            if verdict.problem is None or a is None:
                play.set_verdict(verdict, _below(verdict))
                continue
            play.episode.info["problem"] = verdict.problem
            play.set_verdict(replace(verdict, scores={"solved": a}), learnability(a))

    def _measure_rates(
        self, sound: Sequence[tuple[_Play, GameProblem]], game: Game, ctx: Context
    ) -> dict[tuple[int, int], float]:
        """Success rate of the trials of each proposal; trials that could not be judged do not count."""
        requests, owners = [], []
        for number, (play, problem) in enumerate(sound):
            raw = game.pose(problem, play.episode.prompt.key).observation
            for trial in range(self.trials):
                requests.append(Request(raw, play.seed(ctx, "trial", trial), prompt_id=number))
                owners.append((play, problem))
        if not requests:
            return {}
        completions = ctx.engine.sample(requests, ctx.sampling)
        verdicts = game.judge([(problem, str(done.output)) for (_, problem), done in zip(owners, completions)])
        right: dict[tuple[int, int], list[bool]] = {}
        for (play, _), done, verdict in zip(owners, completions, verdicts):
            if done.ended != "error" and verdict.outcome != "executor":
                right.setdefault(play.key, []).append(verdict.outcome == "right")
        for play, _ in sound:
            if play.key not in right:
                play.fail("none of the trials of a proposal could be judged")
        return {key: sum(values) / len(values) for key, values in right.items()}

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Add the valid proposals of all processes to the known problems, each once."""
        problems = [e.info["problem"] for group in groups for e in group if "problem" in e.info]
        if self.known:
            self._add_problems(problems)
        else:
            self._early += problems

    def _add_problems(self, problems: Sequence[GameProblem]) -> None:
        for problem in problems:
            buffer = self.known[problem.kind]
            if problem not in buffer:
                buffer.append(problem)
                del buffer[: -self.max_problems]

    def metrics(self) -> dict[str, float]:
        """Known problems of each kind."""
        return {f"self_play/known_{kind}": float(len(problems)) for kind, problems in self.known.items()}

    def state_dict(self) -> dict[str, Any]:
        return {kind: [list(problem.body) for problem in problems] for kind, problems in self.known.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = {kind: [GameProblem(kind, tuple(body)) for body in bodies] for kind, bodies in state.items()}


def _below(verdict: Verdict) -> float:
    return BROKEN if verdict.outcome == "broken" else UNSOUND


@dataclass(eq=False)
class _Play:
    """State of an unfinished episode: it solves `problem`, or proposes a problem if there is none."""

    episode: Episode
    kind: str
    problem: GameProblem | None = None
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def key(self) -> tuple[int, int]:
        return self.episode.group, self.episode.sample_index

    def seed(self, ctx: Context, *more: int | str) -> int:
        return derive_seed(ctx.seed, ctx.purpose, ctx.iteration, *self.key, self.episode.role, *more)

    def wrote(self, done: Completion, kinds: Sequence[str]) -> None:
        baseline_group = 2 * kinds.index(self.kind) + (self.problem is None)
        self.episode.turns = [Turn(replace(done, extra={**done.extra, "baseline_group": torch.tensor(baseline_group)}))]
        self.episode.ended = done.ended
        if done.ended == "error":
            self.fail("the engine gave no completion")

    def set_verdict(self, verdict: Verdict, earned: float) -> None:
        if verdict.outcome == "executor":
            self.fail("the executor could not judge it")
        if self.episode.ended == "error":
            return
        role = self.episode.role
        self.episode.info["counts"] = {f"self_play/{role}/{self.kind}/{verdict.outcome}": 1}
        sound = float(verdict.outcome in ("right", "valid"))
        solved = {f"{self.kind}_{name}": value for name, value in verdict.scores.items()}
        self.episode.info["verdict"] = {"earned": earned, "exact": sound, f"{role}_{self.kind}": sound, **solved}

    def fail(self, why: str) -> None:
        self.episode.ended = "error"
        self.episode.info |= {"error": why, "counts": {f"self_play/{self.episode.role}/{self.kind}/executor": 1}}
        log.warning("self-play, %s of %s: %s", self.episode.role, self.kind, why)
