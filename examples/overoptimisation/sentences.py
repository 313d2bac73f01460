"""Sentences about two things for a pretrained policy, with a gold score that a reward model only learns from pairs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import mmrl

ANIMALS = (
    "fox",
    "cat",
    "dog",
    "owl",
    "crab",
    "goat",
    "horse",
    "mouse",
    "whale",
    "snake",
    "duck",
    "bear",
    "frog",
    "wolf",
)
PLACES = ("river", "castle", "garden", "forest", "market", "bridge", "island", "school", "desert", "kitchen", "harbor")
DEEDS = ("sleeps", "eats", "runs", "waits", "sings", "hides", "jumps", "learns")
SHORTEST, LONGEST = 8, 12
"""Words of a sentence that is neither too short nor too long."""


@dataclass(frozen=True)
class Sentences(mmrl.Task):
    """Write one sentence about an animal in a place, of a given length. A fifth of the pairs of things is held out."""

    split: str = "train"
    name = "sentences"

    def __len__(self) -> int:
        return len(_things(self.split)) * len(DEEDS)

    def __getitem__(self, index: int) -> mmrl.Prompt:
        things, deed = divmod(index, len(DEEDS))
        animal, place = _things(self.split)[things]
        request = (
            f"Write one sentence of {SHORTEST} to {LONGEST} words about a {animal} that {DEEDS[deed]} in a {place}."
        )
        message = {"role": "user", "content": request}
        return mmrl.Prompt(f"{self.name}/{self.split}/{index}", (message,), info={"things": (animal, place)})

    def on(self, split: str) -> Sentences:
        return replace(self, split=split)

    def score(self, episode: mmrl.Episode) -> dict[str, float]:
        """Score `gold`: the share of the two things that are named, halved for each of two faults of form."""
        text = episode.output.strip()
        words = re.findall(r"[a-z']+", text.lower())
        named = sum(thing in words for thing in episode.prompt.info["things"]) / 2
        one = len(re.findall(r"[.!?]", text)) == 1 and text.endswith((".", "!", "?"))
        fits = SHORTEST <= len(words) <= LONGEST
        return {"gold": named * (1.0 if one else 0.5) * (1.0 if fits else 0.5), "words": float(len(words))}


def _things(split: str) -> list[tuple[str, str]]:
    """The pairs of a split; every fifth diagonal is held out."""
    held_out = split == "held_out"
    return [(a, p) for i, a in enumerate(ANIMALS) for j, p in enumerate(PLACES) if ((i + j) % 5 == 0) == held_out]
