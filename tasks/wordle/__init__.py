"""Wordle: guess a word of five letters from the letters that earlier guesses share with it."""

from tasks.wordle.task import Wordle

__all__ = ["Wordle"]
