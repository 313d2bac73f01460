"""LSPO: rollouts of a game of hidden roles, in which all players speak once and then vote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Task, Turn
from mmrl.files.patterns import fill_template
from mmrl.rollouts.base import Rollout, text_observation

SIDES = ("village", "wolf")


def win_probability(votes: Sequence[int | None], wolf: int) -> float:
    """Probability that the wolf is voted out: 1 over the players with most votes, if it is one of them, else 0.

    Args:
        votes: by player, the seat from 0; None abstains. Without a vote no player is out.
        wolf: its seat.
    """
    counts: dict[int, int] = {}
    for vote in votes:
        if vote is not None:
            counts[vote] = counts.get(vote, 0) + 1
    leaders = [seat for seat, count in counts.items() if count == max(counts.values())]
    return 1 / len(leaders) if wolf in leaders else 0.0


def read_vote(text: str, player: int, players: int) -> int | None:
    """Return the seat from 0 that a vote names, by its last number; None without one, and for the player itself."""
    numbers = re.findall(r"\d+", text)
    seat = int(numbers[-1]) - 1 if numbers else -1
    return seat if 0 <= seat < players and seat != player else None


@dataclass(frozen=True)
class GameMove:
    """A speech or a vote: what the player read, what was sampled, of which the first was played."""

    player: int
    votes: bool
    samples: Sequence[Completion]

    @property
    def text(self) -> str:
        """The text that was played, in one line."""
        return flatten(self.samples[0])


def flatten(done: Completion) -> str:
    """Return what a completion says in one line."""
    return " ".join(str(done.output).split())


@dataclass(eq=False)
class Table:
    """A game: its decisions so far."""

    slot: int
    prompt: Prompt
    number: int  # among the games of the prompt
    decisions: list[GameMove] = field(default_factory=list)
    failed: bool = False

    @property
    def roles(self) -> Sequence[str]:
        return self.prompt.info["roles"]

    @property
    def speeches(self) -> list[str]:
        return [decision.text for decision in self.decisions if not decision.votes]

    @property
    def won(self) -> float:
        """Probability that the village has won."""
        players = len(self.roles)
        votes = [read_vote(d.text, d.player, players) for d in self.decisions if d.votes]
        return win_probability(votes, self.prompt.info["wolf"])

    def payoff(self, player: int) -> float:
        """Probability that the player's side has won."""
        return 1 - self.won if player == self.prompt.info["wolf"] else self.won


class HiddenRoleGame(Rollout):
    """Rollout of a game: every player speaks once, in the order of the seats, and then all of them vote.

    A player reads what it knows, `info["private"][player]` of the prompt, and the speeches so far. The player with
    most votes is out, and the village wins where that is the wolf. With an `opponent` the policy plays the village in
    prompts of even index and the wolf in the others, and an episode has the moves of its side; without one it plays
    all players. `info["won"]` is the probability that the side of the episode wins, over tied votes.
    Source: LSPO, 2025, section 2, arXiv:2502.04686, with one day.

    Args:
        view: what a player reads, with {private}, {speeches} and {ask}.
        separator: after each speech.
        asks: what {ask} is for a speech and for a vote.
        opponent: the other side's model, by its name in `model.frozen_models`.
    """

    def __init__(
        self,
        view: str = "{private}|{speeches}|{ask}",
        separator: str = "/",
        asks: Sequence[str] = ("say", "vote"),
        opponent: str | None = None,
    ):
        for name in ("private", "speeches", "ask"):
            if f"{{{name}}}" not in view:
                raise ValueError(f"rollout.view={view!r} lacks {{{name}}}; write it where its value belongs")
        if len(asks) != 2:
            raise ValueError(f"rollout.asks must be the words for a speech and for a vote, got {list(asks)}")
        self.view, self.separator, self.asks, self.opponent = view, separator, tuple(asks), opponent

    def sampled_models(self) -> frozenset[str]:
        """Return the name of the opponent."""
        return frozenset() if self.opponent is None else frozenset({self.opponent})

    def check_task(self, task: Task) -> None:
        prompt = task[0]
        info: Mapping[str, Any] = prompt.info
        if not {"roles", "private", "wolf"} <= set(info) or len(info["roles"]) != len(info["private"]):
            raise ValueError(
                f"rollout: prompt {prompt.key!r} needs info['roles'] and info['private'] by player, and info['wolf'], "
                f"and has {sorted(info)}; a task that has them is tasks.werewolf.task.Werewolf"
            )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if self.opponent is not None and self.opponent not in ctx.models:
            raise ConfigError(
                f"rollout.opponent={self.opponent!r} is no model of the run; name it under model.frozen_models, or set "
                "rollout.opponent=null"
            )
        tables = [Table(slot, prompt, number) for slot, prompt in prompts for number in ctx.sample_indices(slot)]
        self.play(tables, ctx)
        return [self.finish(table) for table in tables]

    def play(self, tables: Sequence[Table], ctx: Context, samples: int = 1, stream: str = "game") -> None:
        """Play all games at once, with `samples` samples of each decision."""
        if not tables:
            return
        players = len(tables[0].roles)
        for step in range(2 * players):
            active = [table for table in tables if not table.failed]
            player, votes = step % players, step >= players
            requests = []
            for table in active:
                key = (ctx.seed, ctx.purpose, ctx.iteration, table.slot, table.number, stream, step)
                view = self.write_view(table, player, votes)
                raw = {**text_observation(table.prompt), "messages": ({"role": "user", "content": view},)}
                name = (table.slot, table.number, stream, step)
                model = None if self.plays(table, player) else self.opponent
                requests += [Request(raw, derive_seed(*key, k), prompt_id=name, model=model) for k in range(samples)]
            completions = ctx.engine.sample(requests, ctx.sampling) if requests else []
            for place, table in enumerate(active):
                sampled = [d for d in completions[place * samples : (place + 1) * samples] if d.ended != "error"]
                table.failed = not sampled
                if sampled:
                    table.decisions.append(GameMove(player, votes, sampled))
            ctx.progress("game", step + 1, 2 * players)

    def plays(self, table: Table, player: int) -> bool:
        """Whether the policy plays this player."""
        return self.opponent is None or (player == table.prompt.info["wolf"]) == (self.side(table) == "wolf")

    def side(self, table: Table) -> str:
        """The side of the policy against an opponent."""
        return SIDES[table.prompt.index % 2]

    def write_view(self, table: Table, player: int, votes: bool) -> str:
        """Write what a player reads."""
        speeches = "".join(speech + self.separator for speech in table.speeches)
        private = table.prompt.info["private"][player]
        return fill_template(self.view, private=private, speeches=speeches, ask=self.asks[votes])

    def finish(self, table: Table) -> Episode:
        """Return a game that is over as an episode."""
        if table.failed:
            info = {"error": "the engine gave no move", "counts": {"game/failed": 1}}
            return Episode(table.prompt, table.slot, table.number, ended="error", info=info)
        turns = [Turn(d.samples[0]) for d in table.decisions if self.plays(table, d.player)]
        won = table.won if self.opponent is None or self.side(table) == "village" else 1 - table.won
        info = {"won": won, "moves": [d.text for d in table.decisions]}
        return Episode(table.prompt, table.slot, table.number, turns, info=info)
