"""Deals of hidden roles for a game of speeches and votes, and demonstrated moves of poor players."""

from tasks.werewolf.task import GameMoves, Werewolf

__all__ = ["GameMoves", "Werewolf"]
