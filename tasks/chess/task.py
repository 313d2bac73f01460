"""Image questions about chess positions: a piece, a legal move, mate in one, the best capture, the best move."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.chess.board import NAMES, find_captures, find_mates, import_chess, name_piece, play_random, render
from tasks.chess.engine import rate_moves
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

QUESTIONS = {
    "piece": "What is on {a}? Answer as in white queen, or empty.",
    "move": "{side} to move. Name a legal move of the piece on {a}, as in e2e4.",
    "mate": "{side} to move. Which move mates at once? Answer as in e2e4.",
    "capture": "{side} to move. Which move captures the most valuable piece? Answer as in e2e4.",
    "best": "{side} to move. What is the best move? Answer as in e2e4.",
}
EQUAL = 0.02  # of expected score: moves this close to the best one are best too
DECISIVE = 0.1  # of expected score: how much better than the median move the best one of a problem is
PIECES = ("empty", *(f"{side} {name}" for side in ("white", "black") for name in NAMES))


@dataclass(frozen=True)
class Position:
    """A position in Forsyth-Edwards notation, a question, the square that it names, and all right answers in order.

    `ratings` has the expected score after every legal move for a question about the best one, and is empty for others.
    """

    fen: str
    kind: str
    square: str
    answers: tuple[str, ...] = ()
    ratings: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Chess(GeneratedTask):
    """Questions about positions of random legal games. No board is in both splits.

    The rules alone answer all but "best", which Stockfish judges. Its positions are those whose best move has an
    expected score of DECISIVE more than the median move.

    Args:
        kinds: of piece, move, mate, capture and best; a problem has one of them.
        moves: fewest and most half moves from the start; positions with a mate in one are rare among random ones.
        size: side of the image in pixels, a multiple of 8.
        depth: half moves that Stockfish searches from a position, for "best".
    """

    kinds: Sequence[str] = ("piece",)
    moves: Sequence[int] = (6, 40)
    size: int = 128
    depth: int = 6

    name = "chess"
    packages = ("chess",)

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "kinds", "moves")
        if not self.kinds or not set(self.kinds) <= set(QUESTIONS):
            raise ValueError(f"task {self.name!r}: kinds must be of {', '.join(QUESTIONS)}, got {list(self.kinds)}")
        check_range(self.name, "moves", self.moves, 1, 400)
        if self.size % 8 or self.size < 64:
            raise ValueError(f"task {self.name!r}: size must be a multiple of 8 from 64 on, got {self.size}")
        check_interval(f"task {self.name!r}:", "[1, 20]", depth=self.depth)

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
        elif kind == "best":
            return self._rate(Position(board.fen(), kind, square))
        else:
            answers = sorted((find_mates if kind == "mate" else find_captures)(board))
        return Position(board.fen(), kind, square, tuple(answers)) if answers else None

    def _rate(self, position: Position) -> Position | None:
        """Add the ratings of all moves and the best ones; None for another split, or if the choice matters little."""
        if self.split_of(position) != self.split:  # a search costs more than a draw
            return None
        ratings = rate_moves(position.fen, self.depth)
        best = max(ratings.values())
        if best - statistics.median(ratings.values()) < DECISIVE:
            return None
        answers = sorted(move for move, rating in ratings.items() if rating >= best - EQUAL)
        return replace(position, answers=tuple(answers), ratings=tuple(sorted(ratings.items())))

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
            info={"kind": problem.kind, "fen": problem.fen, "ratings": dict(problem.ratings)},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer, prompt.info["ratings"])

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        if prompt.info["kind"] == "piece":
            return self.write_answer(PIECES[int(rng.integers(len(PIECES)))])
        return self.write_answer(_draw_square(rng) + _draw_square(rng))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).answers[0])


def verify(text: str, answers: Sequence[str], ratings: Mapping[str, float]) -> dict[str, float]:
    """Compare the final line with the right answers.

    exact: 1 if it is one of them; format: 1 if it is a piece, or a move, as they are; quality: the expected score after
    the move, divided by that after the best one, or `exact` where moves have no ratings.
    """
    final = final_line(text)
    pieces = answers[0] in PIECES
    well_formed = final in PIECES if pieces else re.fullmatch("([a-h][1-8]){2}[qrbn]?", final) is not None
    exact = float(final in answers)
    quality = ratings.get(final, 0.0) / max(ratings.values()) if ratings else exact
    return {"exact": exact, "format": float(well_formed), "quality": quality}


def _draw_square(rng: np.random.Generator) -> str:
    return _name_square(int(rng.integers(64)))


def _name_square(number: int) -> str:
    return "abcdefgh"[number % 8] + str(number // 8 + 1)
