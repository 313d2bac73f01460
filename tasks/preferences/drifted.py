"""Planted preferences before and after a policy has moved: labelled pairs of bad words, other answers of good ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.preferences.planted import LENGTH, LETTERS, PlantedPreferences, gold_reward

ANSWERS = 4
"""Unlabelled answers of a training prompt."""


@dataclass(frozen=True)
class DriftedPreferences(PlantedPreferences):
    """Pairs of words of mostly bad letters, with unlabelled words of mostly good ones in `Prompt.info["shifted"]`.

    They stand for a reward model's pairs, which the first policy wrote, and for the answers of the policy that was
    trained with it. Letter number i of 8 has a probability proportional to exp(-drift i / 7) in the pairs and exp(drift
    i / 7) in the other words. Half of the held-out pairs are of the first kind (`Prompt.info["subset"]` "labelled"),
    half of the second ("shifted").

    Args:
        count: as of PlantedPreferences.
        flipped_fraction: as of PlantedPreferences.
        split: as of PlantedPreferences.
        seed: as of PlantedPreferences.
        drift: 0 for no difference.
    """

    drift: float = 2.0

    name = "drifted_preferences"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[0, 20]", drift=self.drift)

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        info = {**prompt.info, "subset": "shifted" if self._is_shifted(index) else "labelled"}
        if self.split == "train":
            rng = derive_rng("drifted", "answers", self._number(index), self.seed)
            info["shifted"] = [self._draw(rng, shifted=True) for _ in range(ANSWERS)]
        return replace(prompt, info=info)

    def _is_shifted(self, index: int) -> bool:
        return self.split == "held_out" and index % 2 == 1

    def _words(self, index: int) -> tuple[str, str]:
        rng = derive_rng("drifted", "words", self._number(index), self.seed)
        while True:
            first, second = (self._draw(rng, self._is_shifted(index)) for _ in range(2))
            if gold_reward(first) != gold_reward(second):
                return (first, second) if gold_reward(first) > gold_reward(second) else (second, first)

    def _draw(self, rng: np.random.Generator, shifted: bool) -> str:
        slope = self.drift if shifted else -self.drift
        weights = np.exp(slope * np.arange(len(LETTERS)) / (len(LETTERS) - 1))
        return "".join(rng.choice(list(LETTERS), LENGTH, p=weights / weights.sum()))

    def on(self, split: str) -> DriftedPreferences:
        return replace(self, split=split)
