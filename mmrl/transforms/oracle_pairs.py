"""Preference pairs by a pairwise oracle: self-play without a reward of single answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.rewards.models.oracle import PreferenceOracle
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.best_worst import label_preference


@dataclass(frozen=True)
class OraclePairs(EpisodeTransform):
    """A preferred and a rejected answer of each group, by draws from the oracle's probabilities.

    pair: the first two answers, of which the winner is drawn; their log-ratio then learns the probability. tournament:
    answers meet in rounds, the winner of the last one is preferred to an answer that lost in the first. Answers that
    are equal as texts are no pair and are left out. Source: Iterative Nash Policy Optimization, 2024, algorithm 1 and
    section 5.1, arXiv:2407.00617.

    Args:
        oracle: of the preferences.
        select: pair or tournament.
    """

    oracle: PreferenceOracle
    select: Literal["pair", "tournament"] = "pair"

    min_group_size = 2

    def writes(self) -> frozenset[str]:
        return frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out: list[Episode] = []
        for number, group in group_episodes(episodes).items():
            rng = derive_rng(ctx.seed, ctx.purpose, ctx.iteration, number, "oracle")
            valid = [episode for episode in group if episode.ended != "error"]
            if len(valid) < 2:
                continue
            pair = self._meet(valid[:2], rng) if self.select == "pair" else self._tournament(valid, rng)
            if str(pair[0].output) != str(pair[1].output):
                out += [label_preference(pair[0], 1), label_preference(pair[1], -1)]
        if not out and episodes:  # one masked row, which needs the column on a process without pairs
            return [label_preference(replace(episodes[0]), 0)]
        return out

    def _meet(self, pair: Sequence[Episode], rng: np.random.Generator) -> tuple[Episode, Episode]:
        """Winner and loser."""
        first, second = pair
        probability = self.oracle.compare(first.prompt, str(first.output), str(second.output))
        return (first, second) if rng.random() < probability else (second, first)

    def _tournament(self, group: Sequence[Episode], rng: np.random.Generator) -> tuple[Episode, Episode]:
        """Winner of the tournament, and a loser of its first round."""
        players: list[Any] = [group[i] for i in rng.permutation(len(group))]
        loser = None
        while len(players) > 1:
            results = [self._meet(players[i : i + 2], rng) for i in range(0, len(players) - 1, 2)]
            if loser is None:
                loser = results[int(rng.integers(len(results)))][1]
            players = [winner for winner, _ in results] + players[2 * len(results) :]
        return players[0], loser  # type: ignore[return-value]  # two answers have met
