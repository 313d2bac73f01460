"""The rows of the sweep: prompts of few and of many tokens, with pictures where the model sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.types import Episode, Prompt, Task

TEXTS = ("ab", "what is 3 + 4?", *(f"{'the quick brown fox jumps over it ' * 2}{number}=" for number in (3, 45)))
"""Two short prompts, and two of about 70 tokens, from which on completions share the storage of their prompt."""
PICTURES = ((32, 32), (32, 48))
"""Height and width of the pictures, by turns."""


@dataclass(frozen=True)
class Letters(Task):
    """Write letters: the score is the share of the answer's characters that are one.

    Args:
        images: number of prompts with a picture, from the first one.
    """

    images: int = 0
    split: str = "train"
    name = "letters"

    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, index: int) -> Prompt:
        key = f"letters/{self.split}/{index}"
        if index >= self.images:
            return Prompt(key, ({"role": "user", "content": TEXTS[index]},))
        picture = np.random.default_rng(index).integers(0, 256, (*PICTURES[index % 2], 3), dtype=np.uint8)
        content = [{"type": "image"}, {"type": "text", "text": TEXTS[index]}]
        return Prompt(key, ({"role": "user", "content": content},), (picture,))

    def on(self, split: str) -> Letters:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        text = episode.output
        return {"letters": sum(character.isalpha() for character in text) / max(len(text), 1)}
