"""Tic-tac-toe against an opponent that draws its moves: games, positions, and moves in positions."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt, Task
from tasks.checks import check_index, check_split
from tasks.generated import ask_user
from tasks.tictactoe.board import TicTacToeRules, list_moves, list_positions, value_of


@functools.cache
def _number_moves() -> dict[tuple[str, int], int]:
    return {move: number for number, move in enumerate(list_moves())}


@functools.cache
def _number_positions() -> dict[str, int]:
    return {position: number for number, position in enumerate(list_positions())}


@dataclass(frozen=True)
class TicTacToe(Task):
    """Tic-tac-toe, in which the policy is X.

    view="game" has games, which differ in the opponent's draws; view="move" has all positions in which X is to move,
    and view="value" all of them with each legal move. Games of the splits are disjoint by their numbers. Of positions
    and moves there are no held-out ones: there are only 2,423 and 8,631, and games meet all of them.
    `demonstrate` of a position is a legal move that is drawn. Scores: `won`, 1 for a win, 1/2 for a draw; `exact`, a
    win, and in the other views whether the answer is a move of highest value against such an opponent.

    Args:
        view: "game", "move" or "value".
        board: how a position is asked for, with {board}.
        value: how a move is asked for, with {board} and {action}.
        count: of games in each split.
        split: "train" or "held_out".
        seed: of the drawn moves.
    """

    view: Literal["game", "move", "value"] = "game"
    board: str = "{board}"
    value: str = "{board}{action}"
    count: int = 4000
    split: str = "train"
    seed: int = 0

    name = "tictactoe"
    rules = TicTacToeRules()

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_at_least(1, f"task {self.name!r}:", count=self.count)
        if self.view not in ("game", "move", "value"):
            raise ConfigError(f"task {self.name!r}: view must be game, move or value, got {self.view!r}")

    def __len__(self) -> int:
        sizes = {"game": self.count, "move": len(list_positions()), "value": len(list_moves())}
        return sizes[self.view]

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        if self.view == "game":
            return Prompt(f"{self.name}/{self.split}/{index}", ask_user(self._write(self.rules.start())))
        return self.find(*list_moves()[index]) if self.view == "value" else self.find(list_positions()[index])

    def find(self, position: Any, action: int | None = None) -> Prompt:
        """Return the prompt of a position (view=move), or of a move in it (view=value)."""
        wanted = "move" if action is None else "value"
        if self.view != wanted:
            raise ConfigError(f"task {self.name!r}: view={self.view} has no such prompt; set task.view={wanted}")
        number = _number_positions()[position] if action is None else _number_moves()[position, action]
        info = {"position": position} if action is None else {"position": position, "action": action}
        return Prompt(f"{self.name}/{self.split}/{number}", ask_user(self._write(position, action)), info=info)

    def _write(self, position: str, action: int | None = None) -> str:
        text = self.board if action is None else self.value.replace("{action}", str(action))
        return text.replace("{board}", position)

    def on(self, split: str) -> TicTacToe:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        if "outcome" in episode.info:
            outcome = episode.info["outcome"]
            return {"won": (outcome + 1) / 2, "exact": float(outcome == 1)}
        position = episode.prompt.info.get("position", self.rules.start())
        text = str(episode.output).strip()
        legal = [str(action) for action in self.rules.actions(position)]
        if text not in legal:
            return {"won": 0.0, "exact": 0.0}
        values = {action: value_of(self.rules.move(position, int(action))) for action in legal}
        return {"won": (values[text] + 1) / 2, "exact": float(values[text] >= max(values.values()) - 1e-9)}

    def demonstrate(self, index: int) -> str:
        check_index(self, index)
        position = self[index].info.get("position", self.rules.start())
        return str(derive_rng(self.name, "drawn", self.seed, index).choice(self.rules.actions(position)))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return str(rng.choice(self.rules.actions(prompt.info.get("position", self.rules.start()))))
