"""Chess: questions about drawn positions of random legal games."""

from tasks.chess.task import Chess

__all__ = ["Chess"]
