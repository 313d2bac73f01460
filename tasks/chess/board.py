"""Positions of random legal games, the right answers about them, and the drawn board."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mmrl.core.installation.optional_packages import import_optional

LIGHT, DARK = (240, 217, 181), (181, 136, 99)
NAMES = ("pawn", "knight", "bishop", "rook", "queen", "king")
VALUES = (1, 3, 3, 5, 9, 0)
"""Usual values of the pieces that can be captured, in the order of NAMES."""
_GLYPHS = "\u265f\u265e\u265d\u265c\u265b\u265a"


def import_chess() -> ModuleType:
    """Import python-chess; raises with the command that installs it."""
    return import_optional("chess", "task 'chess'")


def play_random(rng: np.random.Generator, moves: int) -> Any:
    """Play random legal moves from the start; a game that ends earlier stops before its last move."""
    board = import_chess().Board()
    for _ in range(moves):
        legal = sorted(board.legal_moves, key=str)
        board.push(legal[int(rng.integers(len(legal)))])
        if board.is_game_over():
            board.pop()
            break
    return board


def find_mates(board: Any) -> set[str]:
    """Return the moves in UCI notation that mate at once."""
    mates = set()
    for move in list(board.legal_moves):
        board.push(move)
        if board.is_checkmate():
            mates.add(move.uci())
        board.pop()
    return mates


def find_captures(board: Any) -> set[str]:
    """Return the legal moves in UCI notation that capture a piece of the highest value."""
    gains: dict[str, int] = {}
    for move in board.legal_moves:
        if board.is_en_passant(move):
            gains[move.uci()] = VALUES[0]
        elif board.is_capture(move):
            gains[move.uci()] = VALUES[board.piece_type_at(move.to_square) - 1]
    return {move for move, gain in gains.items() if gain == max(gains.values())}


def name_piece(board: Any, square: str) -> str:
    """Return the piece on a square, such as "white queen", or "empty"."""
    chess = import_chess()
    piece = board.piece_at(chess.parse_square(square))
    return "empty" if piece is None else f"{chess.COLOR_NAMES[piece.color]} {NAMES[piece.piece_type - 1]}"


def render(board: Any, size: int) -> np.ndarray:
    """Draw the board with white below, uint8 [size, size, 3]."""
    chess = import_chess()
    image = Image.new("RGB", (size, size), LIGHT)
    pen, step = ImageDraw.Draw(image), size / 8
    font = _font(round(step * 0.9))
    for square in chess.SQUARES:
        x, y = chess.square_file(square) * step, (7 - chess.square_rank(square)) * step
        if (chess.square_file(square) + chess.square_rank(square)) % 2 == 0:
            pen.rectangle((x, y, x + step - 1, y + step - 1), fill=DARK)
        piece = board.piece_at(square)
        if piece is not None:
            ink, edge = ((255, 255, 255), (0, 0, 0)) if piece.color else ((0, 0, 0), (0, 0, 0))
            glyph = _GLYPHS[piece.piece_type - 1]
            pen.text(
                (x + step / 2, y + step / 2), glyph, fill=ink, font=font, anchor="mm", stroke_width=1, stroke_fill=edge
            )
    return np.asarray(image)


@lru_cache(maxsize=8)
def _font(height: int) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(path), height)
