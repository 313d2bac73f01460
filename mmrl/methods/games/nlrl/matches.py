"""NLRL: games of a policy that writes its moves, against an opponent that draws them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Task, Turn
from mmrl.files.patterns import fill_template
from mmrl.rollouts.base import Rollout, text_observation


class BoardRules(Protocol):
    """Rules of a game of two players who move in turn; the policy moves first. A position is a hashable value."""

    def start(self) -> Hashable:
        """The first position."""

    def actions(self, position: Any) -> Sequence[int]:
        """Legal moves."""

    def move(self, position: Any, action: int) -> Hashable:
        """The position after a move of whoever's turn it is."""

    def outcome(self, position: Any) -> int | None:
        """1 where the first player has won, -1 where it has lost, 0 for a draw, None where the game goes on."""

    def write(self, position: Any) -> str:
        """The position as a text."""


@runtime_checkable
class BoardTask(Protocol):
    """A task of a board game, whose prompts can be asked for by position, or by position and move."""

    rules: BoardRules

    def find(self, position: Any, action: int | None = None) -> Prompt:
        """The prompt of a position, or of a move in it."""


@dataclass(frozen=True)
class Move:
    """A position of the policy, the move that it wrote there, and its completion."""

    position: Any
    action: int
    completion: Completion


@dataclass(eq=False)
class Match:
    """A game that is played: the key of its draws, the position, and the moves of the policy."""

    slot: int
    prompt: Prompt
    number: int  # among the games of the prompt
    key: tuple[Any, ...]
    position: Any
    waits: bool = False  # whether it is the opponent's turn
    moves: list[Move] = field(default_factory=list)
    outcome: int | None = None
    note: str = ""  # "illegal" or "failed", where the policy's text was no legal move or there was none


def read_action(text: str, actions: Sequence[int]) -> int | None:
    """Return the move that a text ends with, its last number; None where it is no legal one."""
    numbers = re.findall(r"\d+", text)
    return int(numbers[-1]) if numbers and int(numbers[-1]) in actions else None


def board_task(task: Task) -> BoardTask:
    """Return the task as one of a board game; refuses others."""
    if not isinstance(task, BoardTask):
        raise ValueError(
            f"rollout: task {task.name!r} has no rules of a board game; a task that has them is "
            "tasks.tictactoe.task.TicTacToe"
        )
    return task


class BoardGames(Rollout):
    """Rollout of whole games against an opponent that draws its moves uniformly; the policy moves first.

    `info["outcome"]` is 1, 0 or -1, and a text that is no legal move loses. The opponent's draws follow from the seed
    of the context, the iteration and the prompt. Source: NLRL, 2024, section 5.3 (tic-tac-toe), arXiv:2411.14251.

    Args:
        view: what the policy reads, with {board}.
        model: the frozen model that plays, by its name in `model.frozen_models`; None: the policy.
    """

    def __init__(self, view: str = "{board}", model: str | None = None):
        if "{board}" not in view:
            raise ValueError(f"rollout.view={view!r} lacks {{board}}; write it where the position belongs")
        self.view, self.model = view, model

    def sampled_models(self) -> frozenset[str]:
        """Return the names of the frozen models that it samples from."""
        return frozenset() if self.model is None else frozenset({self.model})

    def check_task(self, task: Task) -> None:
        board_task(task)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        matches = self.begin(prompts, ctx)
        self.play(matches, ctx)
        return [self.finish(match) for match in matches]

    def begin(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Match]:
        """Return the games of prompts at their first position."""
        rules = board_task(ctx.task).rules
        return [
            Match(slot, prompt, number, ("game", slot, number), rules.start())
            for slot, prompt in prompts
            for number in ctx.sample_indices(slot)
        ]

    def play(self, matches: Sequence[Match], ctx: Context) -> None:
        """Play all games to their ends."""
        rules = board_task(ctx.task).rules
        while True:
            for match in matches:
                self._let_opponent_move(match, rules, ctx)
            active = [match for match in matches if match.outcome is None]
            ctx.progress("match", len(matches) - len(active), len(matches))
            if not active:
                return
            requests = [
                self.request(match.prompt, rules.write(match.position), (*match.key, len(match.moves)), ctx)
                for match in active
            ]
            for match, done in zip(active, ctx.engine.sample(requests, ctx.sampling), strict=True):
                action = read_action(str(done.output), rules.actions(match.position))
                if done.ended == "error" or action is None:
                    match.outcome, match.note = -1, "failed" if done.ended == "error" else "illegal"
                match.moves.append(Move(match.position, -1 if action is None else action, done))
                if match.outcome is None and action is not None:
                    match.position, match.waits = rules.move(match.position, action), True
                    match.outcome = rules.outcome(match.position)

    def request(self, prompt: Prompt, board: str, key: tuple[Any, ...], ctx: Context) -> Request:
        """Return the request of a move."""
        messages = ({"role": "user", "content": fill_template(self.view, board=board)},)
        seed = derive_seed("move", ctx.seed, ctx.purpose, ctx.iteration, *key)
        return Request({**text_observation(prompt), "messages": messages}, seed, model=self.model)

    @staticmethod
    def _let_opponent_move(match: Match, rules: BoardRules, ctx: Context) -> None:
        if match.outcome is None and match.waits:
            rng = derive_rng("opponent", ctx.seed, ctx.purpose, ctx.iteration, *match.key, rules.write(match.position))
            match.position, match.waits = (
                rules.move(match.position, int(rng.choice(rules.actions(match.position)))),
                False,
            )
            match.outcome = rules.outcome(match.position)

    def finish(self, match: Match) -> Episode:
        """Return a game that is over as an episode."""
        if match.note == "failed":
            info = {"error": "the engine gave no move", "counts": {"game/failed": 1}}
            return Episode(match.prompt, match.slot, match.number, ended="error", info=info)
        turns = [Turn(move.completion) for move in match.moves]
        name = match.note or {1: "won", 0: "drawn", -1: "lost"}[match.outcome or 0]
        info = {"outcome": match.outcome, "counts": {f"game/{name}": 1}}
        return Episode(match.prompt, match.slot, match.number, turns, info=info)
