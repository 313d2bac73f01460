"""LSPO: clusters of speeches, and the finite game in which a speech is its cluster."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer

from mmrl.core.errors import check_at_least
from mmrl.methods.games.lspo.cfr import FiniteGame
from mmrl.methods.games.lspo.game import win_probability


class SpeechClusters:
    """k-means of the TF-IDF vectors of speeches, over their words; the number of a cluster is a latent action.

    Args:
        texts: speeches of played games, with repetitions.
        count: of clusters; of fewer distinct speeches each has its own.
        seed: of the first centres.
    """

    def __init__(self, texts: Sequence[str], count: int, seed: int = 0):
        check_at_least(1, "rollout", clusters=count)
        if not texts:
            raise ValueError("rollout.clusters: no speech was played, so nothing can be clustered")
        self.vectorizer = TfidfVectorizer(token_pattern=r"\S+")
        vectors = self.vectorizer.fit_transform([text or "_" for text in texts])
        self.count = min(count, len(set(texts)))
        self.means = KMeans(self.count, n_init=10, random_state=seed % 2**32).fit(vectors)
        self._known = dict(zip(texts, self.means.labels_.tolist()))

    def assign(self, text: str) -> int:
        """Return the cluster of a speech, also of one that was not played."""
        if text not in self._known:
            self._known[text] = int(self.means.predict(self.vectorizer.transform([text or "_"]))[0])
        return self._known[text]


@dataclass(frozen=True)
class LatentDeal:
    """Roles and knowledge of all players."""

    roles: tuple[str, ...]
    private: tuple[str, ...]
    wolf: int


class LatentState(NamedTuple):
    """A deal and the moves so far: clusters of speeches, then votes as places among the other players."""

    deal: LatentDeal
    moves: tuple[int, ...] = ()


class LatentGame(FiniteGame):
    """The game of hidden roles over clusters: every player makes a speech and a vote.

    An information set is what a player knows and the clusters of the speeches so far, which are the same for all that
    hear them. A player can make speeches of the clusters in which its role has spoken. Votes are for another player,
    and are not seen before all have voted.

    Args:
        deals: with their number among those that are drawn.
        clusters: of speeches.
        spoken: clusters by role; a role that is not named has all.
    """

    def __init__(
        self, deals: Mapping[LatentDeal, int], clusters: int, spoken: Mapping[str, Sequence[int]] | None = None
    ):
        check_at_least(1, "latent game", clusters=clusters, deals=len(deals))
        self.counts, self.clusters = deals, clusters
        self.spoken = {role: tuple(sorted(set(ids))) for role, ids in (spoken or {}).items() if ids}
        self.players = len(next(iter(deals)).roles)
        self._won: dict[tuple[tuple[int, ...], int], float] = {}  # by votes and wolf, of which there are few

    def deals(self) -> list[tuple[float, Any]]:
        total = sum(self.counts.values())
        return [(count / total, LatentState(deal)) for deal, count in self.counts.items()]

    def actor(self, state: LatentState) -> int | None:
        return None if len(state.moves) == 2 * self.players else len(state.moves) % self.players

    def information_set(self, state: LatentState) -> Hashable:
        player = len(state.moves) % self.players
        votes = len(state.moves) >= self.players
        return state.deal.private[player], votes, state.moves[: self.players]

    def list_clusters(self, role: str) -> Sequence[int]:
        """Clusters of a role's speeches, in the order of its actions."""
        return self.spoken.get(role, tuple(range(self.clusters)))

    def count_actions(self, state: LatentState) -> int:
        if len(state.moves) >= self.players:
            return self.players - 1
        return len(self.list_clusters(state.deal.roles[len(state.moves)]))

    def move(self, state: LatentState, action: int) -> LatentState:
        number = len(state.moves)
        choice = action if number >= self.players else self.list_clusters(state.deal.roles[number])[action]
        return LatentState(state.deal, (*state.moves, choice))

    def payoffs(self, state: LatentState) -> list[float]:
        key = state.moves[self.players :], state.deal.wolf
        if key not in self._won:
            votes = [name_seat(place, player) for player, place in enumerate(key[0])]
            self._won[key] = win_probability(votes, state.deal.wolf)
        won = self._won[key]
        return [1 - won if player == state.deal.wolf else won for player in range(self.players)]


def name_seat(place: int, player: int) -> int:
    """The seat of a place among the players beside one: 0, 1, ... without the player's own seat."""
    return place + (place >= player)


def find_place(seat: int, player: int) -> int:
    """The inverse of `name_seat`."""
    return seat - (seat > player)
