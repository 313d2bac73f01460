"""Wordle: guess a word of five letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from mmrl.rewards.answers.final_answer import read_guess
from tasks.environment import TextEnvironmentTask
from tasks.wordle.words import WORDS

LETTERS = 5


def compare(guess: str, secret: str) -> str:
    """Mark each letter of a guess: G at its place, Y elsewhere in the word, - not in the word.

    A letter is marked at most as often as the word has it; places that are right count first.
    """
    counts = Counter(b for a, b in zip(guess, secret) if a != b)
    marks = ["G" if a == b else "-" for a, b in zip(guess, secret)]
    for place, letter in enumerate(guess):
        if marks[place] == "-" and counts[letter]:
            marks[place], counts[letter] = "Y", counts[letter] - 1
    return "".join(marks)


@dataclass(frozen=True)
class Wordle(TextEnvironmentTask):
    """Wordle: six guesses at a word of five letters; no word is in both splits.

    Source: the game of LMRL-Gym: Benchmarks for Multi-Turn Reinforcement Learning with Language Models, 2023,
    arXiv:2311.18232.

    Args:
        words: possible words, the first ones of the list.
        show_words: whether the prompt lists them.
        step_cost: is subtracted from the reward of every guess; the reward of the right one is 1.
    """

    name = "wordle"
    max_turns: int = 6
    words: int = len(WORDS)
    show_words: bool = False
    step_cost: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", f"[10, {len(WORDS)}]", words=self.words)

    def draw(self, rng: np.random.Generator) -> str:
        return WORDS[int(rng.integers(self.words))]

    def split_key(self, problem: str) -> str:
        return problem

    def explain(self, problem: str) -> str:
        listed = f" It is one of {', '.join(WORDS[: self.words])}." if self.show_words else ""
        return (
            f"Guess my word of {LETTERS} letters in {self.max_turns} guesses.{listed} I mark each letter: G at its "
            "place, Y elsewhere in the word, - not in the word. Write the word alone."
        )

    def make_environment(self) -> WordleEnvironment:
        return WordleEnvironment(self)


class WordleEnvironment(TextEnvironment):
    """Marks the guesses at one word.

    Scores: exact (1 if it was guessed), efficiency (1 for the first guess, less by 1 / max_turns for each further one)
    and letters (fraction of G in the best guess).
    """

    def __init__(self, task: Wordle):
        self.task = task

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.secret: str = prompt.info["problem"]
        self.remaining, self.guesses, self.best = list(WORDS[: self.task.words]), 0, 0.0
        return self._reply("Your guess?")

    def apply(self, action: str) -> TextStep:
        self.guesses += 1
        guess = read_guess(action).lower()
        if len(guess) != LETTERS or not (guess.isascii() and guess.isalpha()):
            return self._reply(f"Write a word of {LETTERS} letters.", valid=False)
        marks = compare(guess, self.secret)
        self.remaining = [word for word in self.remaining if compare(guess, word) == marks]
        self.best = max(self.best, marks.count("G") / LETTERS)
        return self._reply(f"{guess} {marks}", guess == self.secret)

    def expert_action(self) -> str:
        """Guess the remaining word whose marks leave the fewest words on average."""

        def count_left(guess: str) -> int:
            sizes = Counter(compare(guess, word) for word in self.remaining)
            return sum(size * size for size in sizes.values()) - (sizes["G" * LETTERS] > 0)

        return "raise" if not self.guesses else min(self.remaining, key=count_left)

    def random_action(self, rng: np.random.Generator) -> str:
        return WORDS[int(rng.integers(self.task.words))]

    def _reply(self, text: str, solved: bool = False, valid: bool = True) -> TextStep:
        cost = self.task.step_cost if self.guesses else 0.0
        saved = 1 - (self.guesses - 1) / self.task.max_turns
        scores = {"exact": float(solved), "efficiency": saved if solved else 0.0, "letters": self.best}
        return TextStep(f"\n{text}\n>", reward=solved - cost, terminated=solved, valid=valid, scores=scores)
