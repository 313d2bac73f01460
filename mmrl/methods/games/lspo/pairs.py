"""LSPO: preference pairs of speeches and votes, by the solution of the game over clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.methods.games.lspo.cfr import RegretMinimiser, measure_exploitability
from mmrl.methods.games.lspo.game import GameMove, HiddenRoleGame, Table, flatten, read_vote
from mmrl.methods.games.lspo.latent import LatentDeal, LatentGame, LatentState, SpeechClusters, find_place


def pick_pair(weights: Sequence[float], gap: float = 0.0) -> tuple[int, int] | None:
    """Return the first candidate of highest and of lowest probability; None where they differ by no more than a gap."""
    best, worst = int(np.argmax(weights)), int(np.argmin(weights))
    return (best, worst) if weights[best] - weights[worst] > gap else None


def label_proportion(first: float, second: float, first_share: float, second_share: float) -> float:
    """Probability that the first of two actions is preferred, so that DPO with beta = 1 ends at their proportions.

    The minimum has pi(1) / pi(2) = pi_ref(1) / pi_ref(2) * p / (1 - p), which is first / second at
    p = first second_share / (first second_share + second first_share).

    Args:
        first: probability of the first action in the solution.
        second: of the second one.
        first_share: probability of the first action under the reference.
        second_share: of the second one.
    """
    one, other = first * second_share, second * first_share
    return one / (one + other)


class Solution:
    """The solved game over clusters, and the play that it was made from."""

    def __init__(
        self, records: Sequence[dict[str, Any]], clusters: int, iterations: int, seed: int, tremble: float = 0.0
    ):
        self.records = list(records)
        texts = [text for record in records for text in record["speeches"]]
        self.clusters = SpeechClusters(texts, clusters, seed)
        deals: dict[LatentDeal, int] = {}
        spoken: dict[str, list[int]] = {}
        for record in records:
            deal = LatentDeal(tuple(record["roles"]), tuple(record["private"]), record["wolf"])
            deals[deal] = deals.get(deal, 0) + 1
            for role, text in zip(record["roles"], record["speeches"]):
                spoken.setdefault(role, []).append(self.clusters.assign(text))
        self.game = LatentGame(deals, self.clusters.count, spoken)
        self.strategy = RegretMinimiser(self.game, True, seed, tremble).run(iterations).average()
        self.play: dict[Any, list[list[float]]] = {}  # payoffs of each action in played games, by information set

    def locate(self, table: Table, decision: GameMove) -> LatentState:
        """Return the state of the game over clusters in which a decision was made."""
        info = table.prompt.info
        heard = table.speeches if decision.votes else table.speeches[: decision.player]
        moves = tuple(self.clusters.assign(text) for text in heard)
        moves += (0,) * decision.player if decision.votes else ()  # votes that are not seen
        return LatentState(LatentDeal(tuple(info["roles"]), tuple(info["private"]), info["wolf"]), moves)

    def read_action(self, state: LatentState, decision: GameMove, text: str) -> int | None:
        """Return the number of the action that a text is; None for a vote without a name and an unknown cluster."""
        if decision.votes:
            seat = read_vote(text, decision.player, self.game.players)
            return None if seat is None else find_place(seat, decision.player)
        known = list(self.game.list_clusters(state.deal.roles[decision.player]))
        cluster = self.clusters.assign(text)
        return known.index(cluster) if cluster in known else None

    def observe(self, table: Table) -> None:
        """Count the payoffs of a played game's actions."""
        for decision in table.decisions:
            state = self.locate(table, decision)
            action = self.read_action(state, decision, decision.text)
            if action is not None:
                count = self.game.count_actions(state)
                values = self.play.setdefault(self.game.information_set(state), [[] for _ in range(count)])
                values[action].append(table.payoff(decision.player))


class LatentPairs(HiddenRoleGame):
    """Rollout of pairs of speeches and of votes, by the average strategy of the game over clusters.

    Before its first collection the policy plays `games` games with itself, whose speeches are clustered; the game over
    the clusters is solved by `iterations` of counterfactual regret minimisation. Then every prompt is played once, with
    `samples` samples of each decision, of which two whose actions differ are a pair. A text that is no action has
    probability 0. With labels="rank" the pair has the samples of highest and lowest probability; with "proportions" it
    is the first sample and the next one that differs, and `preference_probability` has the label of
    `label_proportion`, with the shares among the samples as the reference. score="payoff" compares the mean payoffs of
    the actions in the played games in place of the solution, which is no equilibrium but a step against the present
    play. A decision without a pair gives no row, and a game without one a row without a preference.
    Source: LSPO, 2025, section 4, arXiv:2502.04686.

    Args:
        view: as in `HiddenRoleGame`.
        separator: as in `HiddenRoleGame`.
        asks: as in `HiddenRoleGame`.
        clusters: number of clusters by round; further rounds have the last one.
        round: from 1.
        games: from which the clusters are made.
        iterations: of regret minimisation.
        samples: of each decision.
        labels: "rank" or "proportions".
        score: "strategy" or "payoff"; of payoffs there are no proportions.
        gap: in probability or in payoff, which the samples of a pair by rank exceed.
        exploitability: measure that of the solution by walking the whole game, which takes long for many clusters.
        tremble: of `RegretMinimiser`, so that speeches which the solution would not make have replies too.
    """

    def __init__(
        self,
        view: str = "{private}|{speeches}|{ask}",
        separator: str = "/",
        asks: Sequence[str] = ("say", "vote"),
        clusters: Sequence[int] = (3, 4, 5),
        round: int = 1,
        games: int = 256,
        iterations: int = 20_000,
        samples: int = 4,
        labels: Literal["rank", "proportions"] = "rank",
        score: Literal["strategy", "payoff"] = "strategy",
        gap: float = 0.0,
        tremble: float = 0.2,
        exploitability: bool = False,
    ):
        super().__init__(view, separator, asks)
        if not clusters:
            raise ValueError("rollout.clusters must name a number of clusters for each round, got none")
        check_at_least(1, "rollout", clusters=min(clusters), round=round, games=games, iterations=iterations)
        check_at_least(2, "rollout", samples=samples)
        check_fraction("rollout", gap=gap, tremble=tremble)
        for name, value, known in (
            ("labels", labels, ("rank", "proportions")), ("score", score, ("strategy", "payoff")),
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"rollout.{name} must be {' or '.join(known)}, got {value!r}")
        if score == "payoff" and labels != "rank":
            raise ValueError("rollout.score=payoff compares means, which have no proportions; set rollout.labels=rank")
        self.clusters = clusters[min(round, len(clusters)) - 1]
        self.games, self.iterations, self.samples, self.labels, self.score = games, iterations, samples, labels, score
        self.gap, self.tremble, self.measures = gap, tremble, exploitability
        self.exploitability: float | None = None
        self.solution: Solution | None = None
        self._seed = 0  # of the solution

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference", "preference_probability"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        solution = self._solve(ctx)
        tables = [Table(slot, prompt, 0) for slot, prompt in prompts]
        self.play(tables, ctx, self.samples)
        for table in tables:
            if not table.failed:
                solution.observe(table)
        return [episode for table in tables for episode in self._list_rows(table, solution, ctx)]

    def _solve(self, ctx: Context) -> Solution:
        """Return the solution, which the first collection makes; the same on all ranks."""
        if self.solution is None:
            prompts = [ctx.task[index % len(ctx.task)] for index in range(self.games)]
            tables = [Table(place, prompt, 0) for place, prompt in enumerate(prompts)]
            self.play(tables, ctx, stream="latent")
            played = [table for table in tables if not table.failed]
            records = [
                {**{name: table.prompt.info[name] for name in ("roles", "private", "wolf")}, "speeches": table.speeches}
                for table in played
            ]
            self._seed = derive_seed("latent", ctx.seed) % 2**32
            self.solution = Solution(records, self.clusters, self.iterations, self._seed, self.tremble)
            for table in played:
                self.solution.observe(table)
            if self.measures:
                self.exploitability = measure_exploitability(self.solution.game, self.solution.strategy)
        return self.solution

    def _list_rows(self, table: Table, solution: Solution, ctx: Context) -> list[Episode]:
        """Return the pairs of a game, each a group of two rows."""
        first = table.slot * 2 * solution.game.players
        if table.failed:
            error = {"error": "the engine gave no move", "counts": {"game/failed": 1}}
            return [Episode(table.prompt, first, 0, ended="error", info=error)]
        out: list[Episode] = []
        for number, decision in enumerate(table.decisions):
            pair = self._choose(table, decision, solution, ctx)
            if pair is not None:
                chosen, rejected, probability = pair
                for index, (done, sign) in enumerate(((chosen, 1), (rejected, -1))):
                    out.append(self._row(table, decision, first + number, index, done, sign, probability))
        pairs = len(out) // 2
        if not out:
            decision = table.decisions[0]
            out = [self._row(table, decision, first, 0, decision.samples[0], 0, 1.0)]
        out[0].info["counts"] = {"latent/pairs": pairs, "latent/games": 1}
        return out

    def _choose(
        self, table: Table, decision: GameMove, solution: Solution, ctx: Context
    ) -> tuple[Completion, Completion, float] | None:
        """Return the preferred sample of a decision, another one, and the probability of the preference."""
        state = solution.locate(table, decision)
        actions = [solution.read_action(state, decision, flatten(done)) for done in decision.samples]
        key = solution.game.information_set(state)
        if self.score == "payoff":
            played = solution.play.get(key, [])
            if any(action is None or not played[action] for action in actions):
                return None
            weights = [float(np.mean(played[action])) for action in actions if action is not None]
        else:
            strategy = solution.strategy.get(key)
            if strategy is None:
                return None
            weights = [0.0 if action is None else float(strategy[action]) for action in actions]
        if self.labels == "rank":
            pair = pick_pair(weights, self.gap)
            return None if pair is None else (decision.samples[pair[0]], decision.samples[pair[1]], 1.0)
        other = next((i for i, action in enumerate(actions) if action != actions[0]), None)
        if other is None or weights[0] + weights[other] == 0:
            return None
        shares = [actions.count(actions[i]) / len(actions) for i in (0, other)]
        probability = label_proportion(weights[0], weights[other], *shares)
        if probability < 0.5:
            return decision.samples[other], decision.samples[0], 1 - probability
        return decision.samples[0], decision.samples[other], probability

    def _row(
        self, table: Table, decision: GameMove, group: int, index: int, done: Completion, sign: int, probability: float
    ) -> Episode:
        turn = Turn(done).with_columns(
            preference=torch.tensor(float(sign)), preference_probability=torch.tensor(probability)
        )
        info = {"won": table.payoff(decision.player)}
        return Episode(table.prompt, group, index, [turn], role=table.roles[decision.player], info=info)

    def metrics(self) -> dict[str, float]:
        """Number of clusters, of information sets that the solution has, and its exploitability if it is measured."""
        if self.solution is None:
            return {}
        gained = {} if self.exploitability is None else {"latent/exploitability": self.exploitability}
        return {
            **gained,
            "latent/clusters": float(self.solution.clusters.count),
            "latent/information_sets": float(len(self.solution.strategy)),
        }

    def state_dict(self) -> dict[str, Any]:
        if self.solution is None:
            return {}
        return {"records": self.solution.records, "seed": self._seed, "play": list(self.solution.play.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self._seed = state["seed"]
            self.solution = Solution(state["records"], self.clusters, self.iterations, self._seed, self.tremble)
            self.solution.play = dict(state["play"])
