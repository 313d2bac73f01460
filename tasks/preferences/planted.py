"""Pairs of words whose better one a planted reward knows: letters have weights, and some labels may be wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt, Task
from mmrl.rewards.extract import remove_thoughts
from tasks.checks import check_index, check_split
from tasks.generated import ask_user

LETTERS = "abcdefgh"
LENGTH = 6
"""Letters of a word; what is beyond counts as wrong letters."""
_HELD_OUT = 5
"""Every fifth pair is held out."""


def gold_reward(word: str) -> float:
    """Sum of the letters' weights, from -1 for a to 1 for h, over LENGTH; a character too many or another one is -1."""
    weights = [LETTERS.index(c) * 2 / (len(LETTERS) - 1) - 1 if c in LETTERS else -1.0 for c in word[:LENGTH]]
    return (sum(weights) - max(len(word) - LENGTH, 0)) / LENGTH


@dataclass(frozen=True)
class PlantedPreferences(Task):
    """Pairs of random words, ordered by `gold_reward`; a policy's own answer has the score `gold`.

    Args:
        count: pairs of both splits together.
        flipped_fraction: share of the training pairs whose answers are exchanged; held-out pairs are right.
        split: "train" or "held_out".
        seed: of words and wrong labels; part of the task, not of the run.
    """

    count: int = 1000
    flipped_fraction: float = 0.0
    split: str = "train"
    seed: int = 0

    name = "planted_preferences"

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_at_least(_HELD_OUT, f"task {self.name!r}:", count=self.count)
        check_interval(f"task {self.name!r}:", "[0, 1)", flipped_fraction=self.flipped_fraction)

    def __len__(self) -> int:
        held_out = -(-self.count // _HELD_OUT)
        return held_out if self.split == "held_out" else self.count - held_out

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        better, worse = self._words(index)
        rng = derive_rng("planted", "flip", index, self.seed)
        if self.split == "train" and rng.random() < self.flipped_fraction:
            better, worse = worse, better
        question = ask_user(f"Word {self._number(index)}:")
        return Prompt(f"{self.name}/{self.split}/{index}", question, info={"chosen": better, "rejected": worse})

    def _number(self, index: int) -> int:
        if self.split == "held_out":
            return index * _HELD_OUT
        return index + 1 + index // (_HELD_OUT - 1)

    def _words(self, index: int) -> tuple[str, str]:
        """The better and the worse word of a pair; equal rewards are drawn again."""
        rng = derive_rng("planted", "words", self._number(index), self.seed)
        while True:
            first, second = ("".join(rng.choice(list(LETTERS), LENGTH)) for _ in range(2))
            if gold_reward(first) != gold_reward(second):
                return (first, second) if gold_reward(first) > gold_reward(second) else (second, first)

    def on(self, split: str) -> PlantedPreferences:
        return PlantedPreferences(self.count, self.flipped_fraction, split, self.seed)

    def score(self, episode: Episode) -> dict[str, float]:
        scores = episode.info.get("scores")
        return (
            dict(scores)
            if scores is not None
            else {"gold": gold_reward((remove_thoughts(str(episode.output)) or "").strip())}
        )

    def demonstrate(self, index: int) -> str:
        check_index(self, index)
        words = self._words(index)
        return words[int(derive_rng("planted", "demonstration", self._number(index), self.seed).integers(2))]

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return "".join(rng.choice(list(LETTERS), LENGTH))
