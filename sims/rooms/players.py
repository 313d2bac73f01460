"""Two players of one body: one is paid for what is familiar, the other one acts before it.

Adversarial Surprise: Explore and Control with Adversarial Surprise, 2021, arXiv:2107.07394.

- how familiar an observation is: `CategoricalDensity`
- the turns, and what each player is paid while it acts: `SurprisePlayers`
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from mmrl.core.errors import check_at_least, check_interval
from sims.rooms.noisy_rooms import NoisyRooms

EXPLORE, CONTROL = 0, 1
LEAST = 1e-3
"""The lowest probability of a class."""


class CategoricalDensity:
    """Independent frequencies of the classes of each cell, over the observations that were added.

    Args:
        cells: of an observation.
        classes: of a cell.
    """

    def __init__(self, cells: int, classes: int):
        self.counts = np.zeros((cells, classes))
        self.added = 0

    @property
    def probabilities(self) -> np.ndarray:
        """[cells, classes]: uniform before anything was added, and never below `LEAST`."""
        if not self.added:
            return np.full(self.counts.shape, 1 / self.counts.shape[1])
        return np.maximum(self.counts / self.added, LEAST)

    def log_probability(self, observation: np.ndarray) -> float:
        """Sum over the cells of log p(class), in nats."""
        return float(np.log(self.probabilities[np.arange(len(observation)), observation]).sum())

    def add(self, observation: np.ndarray) -> None:
        self.counts[np.arange(len(observation)), observation] += 1
        self.added += 1


class SurprisePlayers(gymnasium.Wrapper):
    """Turns of two players, Explore first, over an environment whose observations are cells of classes.

    After a step of Control the observation is worth its log-probability under what Control has seen in this episode,
    and is added then; in the first part of a turn, `grace`, a step is worth nothing and adds nothing, so that Control
    has time to find its way back to what it knows. Steps of Explore are worth 0 here: what it is paid, the negative of
    what Control earns in the turn after its own, is known later, see `mmrl.methods.exploration.adversarial_surprise`.

    Observation: each cell's class as one-hot numbers, the probabilities of the density, the logarithm of 1 + the number
    of observations in it, the share of the turn that is over, and last the player: 0 for Explore, 1 for Control.

    Args:
        env: with a MultiDiscrete observation space, of equally many classes in each cell.
        turns: of an episode, of both players together; an even number where both play.
        turn: steps of a turn.
        grace: share of Control's turn that is worth nothing.
        scale: factor of the log-probabilities.
        players: "both"; or one of them in every turn, paid at once and without grace: "control" minimises surprise,
            and "explore" maximises it.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        turns: int = 4,
        turn: int = 32,
        grace: float = 0.5,
        scale: float = 1.0,
        players: Literal["both", "control", "explore"] = "both",
    ):
        super().__init__(env)
        check_at_least(1, "sim.kwargs", turns=turns, turn=turn)
        check_interval("sim.kwargs", "[0, 1)", grace=grace)
        if players not in ("both", "control", "explore"):
            raise ValueError(f"sim.kwargs.players must be both, control or explore, got {players!r}")
        if players == "both" and turns % 2:
            raise ValueError(f"sim.kwargs.turns must be even, so that each turn of Explore has an answer, got {turns}")
        self.turns, self.turn, self.scale, self.players = turns, turn, scale, players
        self.worthless = int(grace * turn) if players == "both" else 0  # steps at the beginning of Control's turn
        sizes = env.observation_space.nvec  # type: ignore[attr-defined]
        self.cells, self.classes = len(sizes), int(sizes[0])
        length = 2 * self.cells * self.classes + 3
        self.observation_space = spaces.Box(0.0, np.inf, (length,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        cells, info = self.env.reset(seed=seed, options=options)
        self.steps, self.density = 0, CategoricalDensity(self.cells, self.classes)
        return self._observation(cells), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        player, place = self.player, self.steps % self.turn
        cells, _, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        reward = 0.0
        if (player == CONTROL or self.players == "explore") and place >= self.worthless:
            sign = 1 if player == CONTROL else -1
            reward = sign * self.scale * self.density.log_probability(cells)
            self.density.add(cells)
        return self._observation(cells), reward, terminated or self.steps == self.turns * self.turn, truncated, info

    @property
    def player(self) -> int:
        """Who acts in the next step."""
        if self.players != "both":
            return EXPLORE if self.players == "explore" else CONTROL
        return self.steps // self.turn % 2

    def _observation(self, cells: np.ndarray) -> np.ndarray:
        one_hot = np.eye(self.classes)[cells].reshape(-1)
        part = self.steps % self.turn / self.turn
        rest = [np.log1p(self.density.added), part, self.player]
        return np.concatenate([one_hot, self.density.probabilities.reshape(-1), rest]).astype(np.float32)


def make_players(side: int = 3, colours: int = 4, **options: Any) -> SurprisePlayers:
    """Make `NoisyRooms` for the two players, or for one of them; options are those of `SurprisePlayers`."""
    return SurprisePlayers(NoisyRooms(side, colours), **options)
