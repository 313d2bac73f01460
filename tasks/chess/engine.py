"""The chess engine Stockfish as a judge of moves."""

from __future__ import annotations

import asyncio
import atexit
import shutil
from functools import cache, lru_cache
from threading import Lock
from typing import Any

from tasks.chess.board import import_chess

PLACES = ("/usr/games/stockfish", "/usr/local/bin/stockfish", "/opt/homebrew/bin/stockfish")
"""Where packages put the engine when PATH does not name it."""


def find_engine() -> str | None:
    """Return the path of Stockfish, or None if it is not installed."""
    return shutil.which("stockfish") or next((place for place in PLACES if shutil.which(place)), None)


@lru_cache(maxsize=8192)
def rate_moves(fen: str, depth: int) -> dict[str, float]:
    """Return the expected score of the side to move, in [0, 1], after each legal move in UCI notation.

    Stockfish searches all moves to a depth with one thread and an empty table, so that a position has one rating.
    Its centipawns become an expected score by its own model of wins, draws and losses.
    """
    chess = import_chess()
    board = chess.Board(fen)
    lines = _engine().search(board, depth)
    return {
        line["pv"][0].uci(): line["score"].pov(board.turn).wdl(model="sf", ply=board.ply()).expectation()
        for line in lines
    }


class _Engine:
    """The process of Stockfish. The calling thread runs the event loop, since a thread of its own delays the exit."""

    def __init__(self, path: str):
        import_chess()
        from chess.engine import Limit, popen_uci

        self.limit, self.lock, self.loop = Limit, Lock(), asyncio.new_event_loop()
        _, self.protocol = self.loop.run_until_complete(popen_uci(path))
        self.loop.run_until_complete(self.protocol.configure({"Threads": 1, "Hash": 16}))

    def search(self, board: Any, depth: int) -> list[Any]:
        """Return a line for each legal move, with its score."""
        limit, count = self.limit(depth=depth), board.legal_moves.count()
        with self.lock:
            return self.loop.run_until_complete(self.protocol.analyse(board, limit, multipv=count, game=object()))

    def close(self) -> None:
        """End the process."""
        self.loop.run_until_complete(self.protocol.quit())
        self.loop.close()


@cache
def _engine() -> _Engine:
    """The engine of this process, started when it first rates a position."""
    path = find_engine()
    if path is None:
        raise FileNotFoundError(
            "task 'chess': kind 'best' needs the engine Stockfish, which is not on PATH; install it, on Debian with "
            "apt-get install stockfish, or leave 'best' out of task.kinds"
        )
    engine = _Engine(path)
    atexit.register(engine.close)
    return engine
