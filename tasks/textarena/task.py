"""Games of TextArena for one player."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.installation.optional_packages import import_optional
from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from tasks.environment import TextEnvironmentTask

_LOCK = threading.Lock()


@dataclass(frozen=True)
class Problem:
    """A game and the seed that it is reset with."""

    game: str
    seed: int


@dataclass(frozen=True)
class TextArena(TextEnvironmentTask):
    """Games of TextArena for one player; a seed is in one split alone.

    Games that ask a language model (TwentyQuestions, GuessWho) or download word lists (Wordle, Hangman) need a key or a
    network. TowerOfHanoi, PegJump, Cryptarithm and Countdown have one initial state each, which is in both splits.
    Source: Guertler et al., "TextArena", 2025, arXiv:2504.11442.

    Args:
        games: names with their version, such as Mastermind-v0, drawn with equal probability.
    """

    name = "textarena"
    packages = ("textarena",)
    games: tuple[str, ...] = ("Mastermind-v0",)
    count: int = 2000
    held_out: int = 256
    max_turns: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "games", tuple(self.games))
        for game in self.games:
            make_game(game)

    def draw(self, rng: np.random.Generator) -> Problem:
        return Problem(self.games[int(rng.integers(len(self.games)))], int(rng.integers(2**31)))

    def split_key(self, problem: Problem) -> str:
        return str(problem.seed)

    def explain(self, problem: Problem) -> str:
        return "You play a game. Write one action in the form that its rules ask for."

    def make_environment(self) -> TextArenaEnvironment:
        return TextArenaEnvironment()


class TextArenaEnvironment(TextEnvironment):
    """One game. The reward at its end is the game's, 1 for success. Scores: exact and value, the reward in [0, 1]."""

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        problem: Problem = prompt.info["problem"]
        self.game, self.random_state = make_game(problem.game), None
        with self._own_random_state():
            self.game.reset(num_players=1, seed=problem.seed)
            return self._observe(False)

    def apply(self, action: str) -> TextStep:
        with self._own_random_state():
            done, _ = self.game.step(action)
            return self._observe(done)

    @contextmanager
    def _own_random_state(self) -> Iterator[None]:
        """Run the game with its own state of Python's global generator, which the games draw from."""
        with _LOCK:
            outside = random.getstate()
            if self.random_state is not None:
                random.setstate(self.random_state)
            try:
                yield
            finally:
                self.random_state = random.getstate()
                random.setstate(outside)

    def _observe(self, done: bool) -> TextStep:
        _, messages = self.game.get_observation()
        replies = [(text, kind.name) for _, text, kind in messages if kind.name != "PLAYER_ACTION"]
        reward = 0.0
        if done:
            rewards, _ = self.game.close()
            reward = float((rewards or {}).get(0, 0.0))
        return TextStep(
            "\n".join(["", *(text.strip("\n") for text, _ in replies), ">"]),
            reward=reward,
            terminated=done,
            valid=done or all(kind != "GAME_ADMIN" for _, kind in replies),
            scores={"exact": float(reward >= 1), "value": min(max(reward, 0.0), 1.0)},
        )


def make_game(name: str) -> Any:
    """Make a game whose observations are lists of messages."""
    textarena = import_optional("textarena", "task 'textarena'")
    registry = textarena.envs.registration.ENV_REGISTRY
    if f"{name}-raw" not in registry:
        raise ValueError(f"task textarena: there is no game {name!r}; games are those of textarena, as Mastermind-v0")
    return textarena.make(f"{name}-raw")
