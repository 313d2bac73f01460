"""Tic-tac-toe: games, positions and moves as texts."""

from tasks.tictactoe.board import TicTacToeRules
from tasks.tictactoe.task import TicTacToe

__all__ = ["TicTacToe", "TicTacToeRules"]
