"""Image questions about chess positions: the piece on a square, a legal move, mate in one, the best capture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.types import Prompt
from tasks.checks import final_line
from tasks.chess.board import NAMES, find_captures, find_mates, import_chess, name_piece, play_random, render
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

QUESTIONS = {
    "piece": "What is on {a}? Answer as in white queen, or empty.",
    "move": "{side} to move. Name a legal move of the piece on {a}, as in e2e4.",
    "mate": "{side} to move. Which move mates at once? Answer as in e2e4.",
    "capture": "{side} to move. Which move captures the most valuable piece? Answer as in e2e4.",
}
PIECES = ("empty", *(f"{side} {name}" for side in ("white", "black") for name in NAMES))


@dataclass(frozen=True)
class Position:
    """A position in Forsyth-Edwards notation, a question, the square that it names, and all right answers in order."""

    fen: str
    kind: str
    square: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Chess(GeneratedTask):
    """Questions about positions of random legal games, answered by the rules alone. No board is in both splits.

    Args:
        kinds: of piece, move, mate and capture; a problem has one of them.
        moves: fewest and most half moves from the start; positions with a mate in one are rare among random ones.
        size: side of the image in pixels, a multiple of 8.
    """

    kinds: Sequence[str] = ("piece",)
    moves: Sequence[int] = (6, 40)
    size: int = 128

    name = "chess"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "kinds", "moves")
        if not self.kinds or not set(self.kinds) <= set(QUESTIONS):
            raise ValueError(f"task {self.name!r}: kinds must be of {', '.join(QUESTIONS)}, got {list(self.kinds)}")
        if len(self.moves) != 2 or not 1 <= self.moves[0] <= self.moves[1] <= 400:
            raise ValueError(
                f"task {self.name!r}: moves must be the fewest and the most, from 1 to 400, got {list(self.moves)}"
            )
        if self.size % 8 or self.size < 64:
            raise ValueError(f"task {self.name!r}: size must be a multiple of 8 from 64 on, got {self.size}")

    def draw(self, rng: np.random.Generator) -> Position | None:
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        board = play_random(rng, int(rng.integers(self.moves[0], self.moves[1], endpoint=True)))
        square = _draw_square(rng)
        if kind == "piece":
            if rng.random() < 0.75:  # a board is mostly empty: ask about a piece three times of four
                pieces = sorted(board.piece_map())
                square = _name_square(pieces[int(rng.integers(len(pieces)))])
            answers = [name_piece(board, square)]
        elif kind == "move":
            starts = sorted({move.uci()[:2] for move in board.legal_moves})
            square = starts[int(rng.integers(len(starts)))]
            answers = sorted(move.uci() for move in board.legal_moves if move.uci().startswith(square))
        else:
            answers = sorted((find_mates if kind == "mate" else find_captures)(board))
        return Position(board.fen(), kind, square, tuple(answers)) if answers else None

    def split_key(self, problem: Position) -> str:
        return problem.fen.split()[0]

    def write_prompt(self, problem: Position, key: str) -> Prompt:
        board = import_chess().Board(problem.fen)
        side = "White" if board.turn else "Black"
        return Prompt(
            key,
            ask_about_images(QUESTIONS[problem.kind].replace("{a}", problem.square).replace("{side}", side)),
            images=(render(board, self.size),),
            answer=problem.answers,
            info={"kind": problem.kind, "fen": problem.fen},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        if prompt.info["kind"] == "piece":
            return self.write_answer(PIECES[int(rng.integers(len(PIECES)))])
        return self.write_answer(_draw_square(rng) + _draw_square(rng))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).answers[0])


def verify(text: str, answers: Sequence[str]) -> dict[str, float]:
    """exact: 1 if the final line is one of the right answers; format: 1 if it is a piece, or a move, as they are."""
    final = final_line(text)
    pieces = answers[0] in PIECES
    well_formed = final in PIECES if pieces else re.fullmatch("([a-h][1-8]){2}[qrbn]?", final) is not None
    return {"exact": float(final in answers), "format": float(well_formed)}


def _draw_square(rng: np.random.Generator) -> str:
    return _name_square(int(rng.integers(64)))


def _name_square(number: int) -> str:
    return "abcdefgh"[number % 8] + str(number // 8 + 1)
