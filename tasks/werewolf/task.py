"""Deals of a wolf, a seer and two villagers; the seer has looked at one player."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from tasks.generated import SeededTask, ask_user

ROLES = ("wolf", "seer", "villager", "villager")
ACCUSATIONS = ("{} bad", "vote {}")
SILENCES = ("pass", "none")


@dataclass(frozen=True)
class RoleDeal:
    """Roles by seat, the seat that the seer looked at, and the number of the game."""

    roles: tuple[str, ...]
    looked: int
    number: int

    @property
    def wolf(self) -> int:
        return self.roles.index("wolf")

    def write_private(self, player: int) -> str:
        """Write what a player knows: seat, role, and of the seer what it saw."""
        text = f"{player + 1} {self.roles[player]}"
        return f"{text} {self.looked + 1} {self.verdict}" if self.roles[player] == "seer" else text

    @property
    def verdict(self) -> str:
        return "bad" if self.looked == self.wolf else "ok"


@dataclass(frozen=True)
class Werewolf(SeededTask):
    """Deals of four seats: one wolf, one seer who knows of one other player whether it is the wolf, two villagers.

    `info` has `roles` and `private`, what each player knows, by seat, and the seat of the wolf, from 0. There are only
    36 deals, so both splits have all of them; a hash of the number of a game says to which split the game belongs. The
    score `won` is that of the rollout that plays the game.
    """

    name = "werewolf"

    def draw(self, rng: np.random.Generator) -> RoleDeal:
        roles = tuple(ROLES[i] for i in rng.permutation(len(ROLES)))
        others = [player for player, role in enumerate(roles) if role != "seer"]
        return RoleDeal(roles, int(rng.choice(others)), int(rng.integers(10**9)))

    def split_key(self, problem: RoleDeal) -> str:
        return str(problem.number)

    def write_prompt(self, problem: RoleDeal, key: str) -> Prompt:
        private = [problem.write_private(player) for player in range(len(ROLES))]
        info = {"roles": list(problem.roles), "private": private, "wolf": problem.wolf}
        return Prompt(key, ask_user("werewolf"), answer=str(problem.wolf + 1), info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        return {"won": float(episode.info.get("won", 0.0))}

    def demonstrate(self, index: int) -> str:
        return self[index].answer

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return str(int(rng.integers(len(ROLES))) + 1)


@dataclass(frozen=True)
class GameMoves(Werewolf):
    """Deals with demonstrated speeches and votes, for a start of players that know the rules and no strategy.

    A speech accuses another player or says nothing. A seer who saw the wolf names it with probability `honest`, in a
    speech and in its vote; all other speeches are drawn: nothing with probability `silent`, else any other player. A
    vote goes to a player who was accused by another one with probability `trusting`, else to any other player.

    Args:
        view: what a player reads, with {private}, {speeches} and {ask}: as the rollout has it.
        separator: after each speech: as the rollout has it.
        asks: of a speech and of a vote: as the rollout has them.
        honest: a seer's probability of telling that it saw the wolf.
        silent: probability of a speech that accuses no player.
        trusting: probability of a vote for an accused player.
    """

    view: str = "{private}|{speeches}|{ask}"
    separator: str = "/"
    asks: Sequence[str] = ("say", "vote")
    honest: float = 0.5
    silent: float = 0.4
    trusting: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "asks", tuple(self.asks))
        check_fraction(f"task {self.name!r}:", honest=self.honest, silent=self.silent, trusting=self.trusting)

    def play(self, index: int) -> tuple[list[str], list[str]]:
        """Return demonstrated speeches and votes, by seat."""
        rng = derive_rng(self.name, "moves", self.split, self.seed, index)
        deal = self.problem(index)
        speeches = [self._speak(deal, player, rng) for player in range(len(ROLES))]
        return speeches, [self._vote(deal, player, speeches, rng) for player in range(len(ROLES))]

    def _speak(self, deal: RoleDeal, player: int, rng: np.random.Generator) -> str:
        if self._tells(deal, player, rng):
            return str(rng.choice(ACCUSATIONS)).format(deal.looked + 1)
        if rng.random() < self.silent:
            return str(rng.choice(SILENCES))
        return str(rng.choice(ACCUSATIONS)).format(_draw_other(player, rng) + 1)

    def _vote(self, deal: RoleDeal, player: int, speeches: Sequence[str], rng: np.random.Generator) -> str:
        if self._tells(deal, player, rng):
            return str(deal.looked + 1)
        names = [int(name) - 1 for speech in speeches for name in re.findall(r"\d", speech)]
        accused = [name for name in names if name != player]
        if accused and rng.random() < self.trusting:
            return str(int(rng.choice(accused)) + 1)
        return str(_draw_other(player, rng) + 1)

    def _tells(self, deal: RoleDeal, player: int, rng: np.random.Generator) -> bool:
        knows = deal.roles[player] == "seer" and deal.looked == deal.wolf
        return knows and bool(rng.random() < self.honest)

    def demonstrations(self, prompts: Sequence[Prompt]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        return [self._list_moves(prompt) for prompt in prompts]

    def _list_moves(self, prompt: Prompt) -> list[tuple[Mapping[str, Any], Any]]:
        speeches, votes = self.play(prompt.index)
        moves = []
        for number, text in enumerate([*speeches, *votes]):
            player, votes_now = number % len(ROLES), number >= len(ROLES)
            values = {
                "private": prompt.info["private"][player],
                "speeches": "".join(speech + self.separator for speech in speeches[:number]),
                "ask": self.asks[votes_now],
            }
            view = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), self.view)  # noqa: B023
            moves.append(({**prompt.observation, "messages": ask_user(view)}, text))
        return moves


def _draw_other(player: int, rng: np.random.Generator) -> int:
    return int(rng.choice([other for other in range(len(ROLES)) if other != player]))
