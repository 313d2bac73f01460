"""LSPO: counterfactual regret minimisation in a finite game, and how exploitable a strategy of it is."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_seed

Strategy = Mapping[Hashable, np.ndarray]
"""Probabilities of the actions by information set; a set that is not in it is played uniformly."""


class FiniteGame(ABC):
    """A finite game of several players with perfect recall, whose chance is drawn before the first move.

    A state is a hashable value, and actions are numbered from 0.
    """

    players: int

    @abstractmethod
    def deals(self) -> Sequence[tuple[float, Any]]:
        """Probability and first state of every deal."""

    @abstractmethod
    def actor(self, state: Any) -> int | None:
        """The player whose move it is; None where the game is over."""

    @abstractmethod
    def information_set(self, state: Any) -> Hashable:
        """What the actor knows, which includes who it is."""

    @abstractmethod
    def count_actions(self, state: Any) -> int:
        """Number of the actor's actions, the same in all states of an information set."""

    @abstractmethod
    def move(self, state: Any, action: int) -> Any:
        """The state after an action."""

    @abstractmethod
    def payoffs(self, state: Any) -> Sequence[float]:
        """Payoff of every player where the game is over."""


def match_regrets(regrets: Sequence[float]) -> list[float]:
    """max(R, 0) / sum max(R, 0) over actions [A]; uniform where no regret is positive.

    Source: Zinkevich et al., Regret Minimization in Games with Incomplete Information, 2007, equation 8.
    """
    positive = [regret if regret > 0 else 0.0 for regret in regrets]
    total = sum(positive)
    return [regret / total for regret in positive] if total > 0 else [1 / len(positive)] * len(positive)


class RegretMinimiser:
    """Counterfactual regret minimisation; the average strategy is its result.

    An iteration adds to the regret of each action a in an information set I the counterfactual value
    q(I, a) - sum_b pi(I, b) q(I, b), with pi by `match_regrets`. With `sampled` the deal and the moves of the others
    are drawn (external sampling), else the whole tree is walked. A player whose move is drawn trembles with probability
    `tremble`, then all of its moves are as probable: so information sets that no strategy reaches are solved too. With
    two players of opposite payoffs the average strategy approaches an equilibrium; with more there is no such
    guarantee.
    Source: Zinkevich et al., 2007, equations 7 and 8; Lanctot et al., Monte Carlo Sampling for Regret Minimization in
    Extensive Games, 2009, section 4 (external sampling).

    Args:
        game: that is solved.
        sampled: draw the deal and the others' moves.
        seed: of the draws.
        tremble: probability of a drawn move that follows no strategy; of sampled ones alone.
    """

    def __init__(self, game: FiniteGame, sampled: bool = False, seed: int = 0, tremble: float = 0.0):
        check_fraction("regret minimiser", tremble=tremble)
        self.game, self.sampled, self.tremble = game, sampled, tremble
        self.random = random.Random(derive_seed("counterfactual regret", seed)).random
        self.regrets: dict[Hashable, list[float]] = {}  # lists, since few actions are faster so than as arrays
        self.sums: dict[Hashable, list[float]] = {}  # of strategies, weighted with the actor's own reach

    def run(self, iterations: int) -> RegretMinimiser:
        """Make further iterations, in which the players take turns."""
        check_at_least(1, "regret minimiser", iterations=iterations)
        deals = self.game.deals()
        states = [state for _, state in deals]
        shares = np.cumsum([share for share, _ in deals])
        for _ in range(iterations):
            for player in range(self.game.players):
                if self.sampled:
                    draw = int(np.searchsorted(shares, self.random() * shares[-1], side="right"))
                    self._sample(states[min(draw, len(states) - 1)], player)
                else:
                    for share, state in deals:
                        self._walk(state, player, 1.0, share)
        return self

    def average(self) -> dict[Hashable, np.ndarray]:
        """The average strategy of every information set that was reached."""
        return {key: np.array(total) / sum(total) for key, total in self.sums.items() if sum(total) > 0}

    def _parts(self, state: Any) -> tuple[list[float], list[float], list[float]]:
        """Regrets, sums and the present strategy of a state's information set."""
        key = self.game.information_set(state)
        regrets = self.regrets.get(key)
        if regrets is None:
            count = self.game.count_actions(state)
            regrets = self.regrets[key] = [0.0] * count
            self.sums[key] = [0.0] * count
        return regrets, self.sums[key], match_regrets(regrets)

    def _walk(self, state: Any, player: int, own: float, others: float) -> float:
        """Value of a state for the player; `own` and `others` are the probabilities with which they play to it."""
        actor = self.game.actor(state)
        if actor is None:
            return float(self.game.payoffs(state)[player])
        regrets, sums, strategy = self._parts(state)
        if actor != player:
            moves = enumerate(strategy)
            return sum(p * self._walk(self.game.move(state, a), player, own, others * p) for a, p in moves if p > 0)
        values = [self._walk(self.game.move(state, a), player, own * p, others) for a, p in enumerate(strategy)]
        value = sum(p * v for p, v in zip(strategy, values))
        for action, p in enumerate(strategy):
            regrets[action] += others * (values[action] - value)
            sums[action] += own * p
        return value

    def _sample(self, state: Any, player: int) -> float:
        """Estimate the value of a state for the player: all of its own moves, and one draw of each other's."""
        actor = self.game.actor(state)
        if actor is None:
            return float(self.game.payoffs(state)[player])
        regrets, sums, strategy = self._parts(state)
        if actor != player:
            if actor == (player + 1) % self.game.players:  # once in an iteration
                for action, p in enumerate(strategy):
                    sums[action] += p
            return self._sample(self.game.move(state, self._draw(strategy)), player)
        values = [self._sample(self.game.move(state, action), player) for action in range(len(strategy))]
        value = sum(p * v for p, v in zip(strategy, values))
        for action, v in enumerate(values):
            regrets[action] += v - value
        return value

    def _draw(self, strategy: Sequence[float]) -> int:
        """Draw an action of a strategy with trembles."""
        if self.tremble and self.random() < self.tremble:
            return int(self.random() * len(strategy))
        draw = self.random()
        for action, p in enumerate(strategy):
            draw -= p
            if draw < 0:
                return action
        return len(strategy) - 1


def evaluate_strategy(game: FiniteGame, strategy: Strategy) -> np.ndarray:
    """Expected payoff [players] where all players follow a strategy; walks the whole tree."""

    def value(state: Any) -> np.ndarray:
        if game.actor(state) is None:
            return np.asarray(game.payoffs(state), dtype=float)
        moves = enumerate(_probabilities(game, strategy, state))
        return np.sum([p * value(game.move(state, a)) for a, p in moves if p > 0], axis=0)

    return np.sum([share * value(state) for share, state in game.deals()], axis=0)


def best_response_value(game: FiniteGame, strategy: Strategy, player: int) -> float:
    """Largest expected payoff of a player against a strategy of the others; walks the whole tree."""
    members: dict[Hashable, list[tuple[Any, float]]] = {}  # states of a set, with chance's and the others' reach

    def list_states(state: Any, reach: float) -> None:
        actor = game.actor(state)
        if actor is None:
            return
        if actor == player:
            members.setdefault(game.information_set(state), []).append((state, reach))
        moves = enumerate(_probabilities(game, strategy, state))
        for action, p in moves:
            list_states(game.move(state, action), reach if actor == player else reach * p)

    choices: dict[Hashable, int] = {}

    def choose(key: Hashable) -> int:
        if key not in choices:
            states = members[key]
            actions = range(game.count_actions(states[0][0]))
            totals = [sum(reach * value(game.move(state, a)) for state, reach in states) for a in actions]
            choices[key] = int(np.argmax(totals))
        return choices[key]

    def value(state: Any) -> float:
        actor = game.actor(state)
        if actor is None:
            return float(game.payoffs(state)[player])
        if actor == player:
            return value(game.move(state, choose(game.information_set(state))))
        moves = enumerate(_probabilities(game, strategy, state))
        return sum(p * value(game.move(state, a)) for a, p in moves if p > 0)

    for share, state in game.deals():
        list_states(state, share)
    return sum(share * value(state) for share, state in game.deals())


def measure_exploitability(game: FiniteGame, strategy: Strategy) -> float:
    """Mean over players of what a player gains by its best response, 0 in an equilibrium; walks the whole tree."""
    values = evaluate_strategy(game, strategy)
    gains = [best_response_value(game, strategy, player) - values[player] for player in range(game.players)]
    return float(np.mean(gains))


def _probabilities(game: FiniteGame, strategy: Strategy, state: Any) -> np.ndarray:
    known = strategy.get(game.information_set(state))
    count = game.count_actions(state)
    return np.full(count, 1 / count) if known is None else known
