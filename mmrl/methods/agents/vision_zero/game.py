"""Vision-Zero: games of "who is the spy"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Task, Turn
from mmrl.files.patterns import fill_template
from mmrl.methods.agents.vision_zero.credit import clue_rewards, vote_reward
from mmrl.methods.agents.vision_zero.phases import PhaseSwitch
from mmrl.rollouts.base import Rollout

CITIZEN, SPY, VOTER = "citizen", "spy", "voter"
"""Roles of episodes: the first two give clues."""


def read_vote(text: str, players: int) -> int | None:
    """Return the last number of a text as a player from 0, -1 if there is no such player or number, None for n/a."""
    numbers = re.findall(r"\d+", text)
    if not numbers:
        return None if "n/a" in text.lower() else -1
    return int(numbers[-1]) - 1 if 1 <= int(numbers[-1]) <= players else -1


class SpyGame(Rollout):
    """Play "who is the spy": all players give clues in `rounds`, then the citizens vote.

    Citizens see the prompt's image, the spy that of `info["altered"]`. In the phase of clues a prompt has
    `data.group_size` games, with an episode for each player and one vote of each citizen; in the phase of votes it has
    one game, with `data.group_size` votes of each citizen, each an episode. `info["earned"]` is the reward. Baselines
    of the roles are running means over the iterations before. Where a clue fails, the game's episodes are errors.
    Source: Vision-Zero, 2025, sections 3.1 and 3.2, arXiv:2509.25541.

    Args:
        players: one of them is the spy.
        rounds: of clues.
        clue_prompt: text behind the image, with {player}, {players}, {role} and {clues}, those so far.
        vote_prompt: text behind the image, with {player}, {players} and {clues}.
        roles: what {role} is for a citizen and for the spy.
        beta: of `clue_rewards`.
        spread: of `clue_rewards`.
        decay: of the baselines of the roles.
        phase: "clues" or "votes", the first phase; it changes as `PhaseSwitch` says.
        switch: thresholds of `PhaseSwitch`, by name; None never changes the phase.
    """

    def __init__(
        self,
        players: int = 4,
        rounds: int = 2,
        clue_prompt: str = "You are player {player} of {players} and {role}. The spy has another picture than the "
        "others.\nClues so far:\n{clues}\nGive one short clue about your picture.",
        vote_prompt: str = "You are player {player} of {players}. One player, the spy, has another picture than the "
        "others.\nClues:\n{clues}\nWho is the spy? Answer with the number of the player, or n/a.",
        roles: Sequence[str] = ("a citizen", "the spy"),
        beta: float = 0.1,
        spread: float = 0.1,
        decay: float = 0.95,
        phase: Literal["clues", "votes"] = "votes",
        switch: Mapping[str, float] | None = None,
    ):
        check_at_least(3, "rollout", players=players)
        check_at_least(1, "rollout", rounds=rounds)
        check_fraction("rollout", decay=decay)
        if phase not in ("clues", "votes"):
            raise ValueError(f"rollout.phase must be clues or votes, got {phase!r}")
        for key, template in (("clue_prompt", clue_prompt), ("vote_prompt", vote_prompt)):
            if "{clues}" not in template:
                raise ValueError(f"rollout.{key}={template!r} lacks {{clues}}; write it where the clues belong")
        self.players, self.rounds, self.roles = players, rounds, tuple(roles)
        self.clue_prompt, self.vote_prompt = clue_prompt, vote_prompt
        self.beta, self.spread, self.decay = beta, spread, decay
        self.switches = switch is not None
        self.phases = PhaseSwitch(**{**(switch or {}), "phase": phase})  # type: ignore[arg-type]
        self.baselines = {CITIZEN: 0.0, SPY: 0.0}

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"voter", "role_baseline"})

    def check_task(self, task: Task) -> None:
        prompt = task[0]
        altered = prompt.info.get("altered")
        if len(prompt.images) != 1 or not isinstance(altered, np.ndarray):
            raise ValueError(
                f"rollout: prompt {prompt.key!r} needs one image and another one as info['altered'], for the spy; a "
                "task that has both is tasks.scenes.spy.SpyScenes"
            )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        clues = self.phases.phase == "clues"
        games = []
        for slot, prompt in prompts:
            for number in ctx.sample_indices(slot) if clues else range(1):
                rng = derive_rng(ctx.seed, ctx.purpose, "spy", ctx.iteration, slot, number)
                games.append(_Game(slot, prompt, number, int(rng.integers(self.players)), self.players))
        for step in range(self.rounds * self.players):
            self._give_clues(games, step % self.players, step, ctx)
            ctx.progress("game", step + 1, self.rounds * self.players)
        ballots = [
            (game, player, number)
            for game in games
            for player in range(self.players)
            if player != game.spy and not game.failed
            for number in ([game.number] if clues else ctx.sample_indices(game.slot))
        ]
        votes = self._vote(ballots, ctx)
        if clues:
            return [episode for game in games for episode in self._clue_episodes(game, votes)]
        failed = [self._fail(game, 0, VOTER) for game in games if game.failed]
        return [*[episode for _, episode, _ in votes], *failed]

    def _give_clues(self, games: Sequence[_Game], player: int, step: int, ctx: Context) -> None:
        """Sample the next clue of one player in every game."""
        active = [game for game in games if not game.failed]
        requests = []
        for game in active:
            asked = game.ask(self.clue_prompt, player, role=self.roles[player == game.spy])
            seed = derive_seed(ctx.seed, ctx.purpose, ctx.iteration, game.slot, game.number, "clue", step)
            requests.append(Request(asked.observation, seed))
            game.asked[player].append(asked)
        for game, done in zip(active, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            game.failed = done.ended == "error"
            game.clues.append((player, " ".join(str(done.output).split())))
            game.turns[player].append(done)

    def _vote(self, ballots: Sequence[tuple[_Game, int, int]], ctx: Context) -> list[tuple[_Game, Episode, int | None]]:
        """Sample votes; return the game, the vote's episode and the player that it names."""
        requests, asked = [], []
        for game, player, number in ballots:
            asked.append(game.ask(self.vote_prompt, player))
            seed = derive_seed(ctx.seed, ctx.purpose, ctx.iteration, game.slot, number, "vote", player)
            requests.append(Request(asked[-1].observation, seed, prompt_id=(game.slot, game.number, player)))
        votes = []
        completions = ctx.engine.sample(requests, ctx.sampling) if requests else []
        for (game, player, number), prompt, done in zip(ballots, asked, completions):
            vote = read_vote(str(done.output), self.players)
            outcome, earned = vote_reward(vote, game.spy)
            info = {"outcome": outcome, "earned": earned, "counts": {f"game/{outcome}": 1}}
            turn = _turn(done, player, 0.0)
            # the indices of a citizen's votes follow each other
            index = player + self.players * number
            episode = Episode(prompt, game.slot, index, [turn], ended=done.ended, role=VOTER, info=info)
            if done.ended == "error":
                episode.info = {"error": "the engine gave no vote", "counts": {"game/failed": 1}}
            votes.append((game, episode, vote))
        return votes

    def _clue_episodes(self, game: _Game, votes: Sequence[tuple[_Game, Episode, int | None]]) -> list[Episode]:
        """The players' clues as episodes, paid for the votes of the game."""
        cast = [(episode, vote) for other, episode, vote in votes if other is game and episode.ended != "error"]
        if game.failed or not cast:
            return [self._fail(game, player, SPY if player == game.spy else CITIZEN) for player in range(self.players)]
        received = [float(sum(vote == player for _, vote in cast)) for player in range(self.players)]
        earned = clue_rewards(received, game.spy, self.beta, self.spread)
        out = []
        for player, reward in enumerate(earned):
            role = SPY if player == game.spy else CITIZEN
            turns = [_turn(done, -1, self.baselines[role]) for done in game.turns[player]]
            index = game.number * self.players + player
            episode = Episode(game.asked[player][-1], game.slot, index, turns, role=role, info={"earned": reward})
            out.append(episode)
        counts: dict[str, int] = {}
        for episode, _ in cast:
            for name, number in episode.info["counts"].items():
                counts[name] = counts.get(name, 0) + number
        out[0].info["counts"] = counts
        return out

    def _fail(self, game: _Game, player: int, role: str) -> Episode:
        info = {"error": "a player's completion failed", "counts": {"game/failed": 1}}
        index = game.number * self.players + player
        return Episode(game.prompt, game.slot, index, ended="error", role=role, info=info)

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Update the baselines of the roles and the phase from the games of all processes."""
        episodes = [episode for group in groups for episode in group if episode.ended != "error"]
        for role, before in self.baselines.items():
            earned = [float(e.info["earned"]) for e in episodes if e.role == role]
            if earned:
                self.baselines[role] = self.decay * before + (1 - self.decay) * sum(earned) / len(earned)
        counts = {
            name: sum(e.info.get("counts", {}).get(f"game/{name}", 0) for e in episodes)
            for name in ("right", "none", "wrong")
        }
        if self.switches and (total := sum(counts.values())):
            self.phases.update(counts["right"] / total, counts["none"] / total)

    def metrics(self) -> dict[str, float]:
        """Whether clues are trained, and the baselines of the roles."""
        baselines = {f"game/baseline_{role}": value for role, value in self.baselines.items()}
        return {"game/trains_clues": float(self.phases.phase == "clues"), **baselines}

    def state_dict(self) -> dict[str, Any]:
        return {"baselines": dict(self.baselines), "phases": self.phases.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.baselines = dict(state["baselines"])
        self.phases.load_state_dict(state["phases"])


@dataclass(eq=False)
class _Game:
    """One game: clues so far, and what each player read and wrote."""

    slot: int
    prompt: Prompt
    number: int  # among the games of the prompt
    spy: int
    players: int
    clues: list[tuple[int, str]] = field(default_factory=list)
    failed: bool = False

    def __post_init__(self) -> None:
        self.asked: list[list[Prompt]] = [[] for _ in range(self.players)]
        self.turns: list[list[Completion]] = [[] for _ in range(self.players)]

    def ask(self, template: str, player: int, **fields: str) -> Prompt:
        """Return a player's prompt: its picture, and a text with the clues so far."""
        clues = "\n".join(f"{giver + 1}: {clue}" for giver, clue in self.clues)
        numbers = {"player": str(player + 1), "players": str(self.players)}
        text = fill_template(template, clues=clues, **numbers, **fields)
        image = self.prompt.info["altered"] if player == self.spy else self.prompt.images[0]
        content = [{"type": "image"}, {"type": "text", "text": text}]
        message = {"role": "user", "content": content}
        return replace(self.prompt, messages=(message,), images=(image,), answer=str(self.spy + 1))


def _turn(done: Completion, voter: int, baseline: float) -> Turn:
    return Turn(done).with_columns(voter=torch.tensor(voter), role_baseline=torch.tensor(baseline))
