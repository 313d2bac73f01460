"""Puzzles that are solved by search, whose demonstrations show dead ends."""

from tasks.puzzles.list_functions import ListFunctions
from tasks.puzzles.sudoku import Sudoku

__all__ = ["ListFunctions", "Sudoku"]
