"""Captioned pictures of two discs, for an encoder of pictures and sentences."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mmrl.rewards.models.captions import SceneCaptions
from sims.point.discs import COLOURS, draw_places, paint
from sims.point.instructed_discs import SENTENCES, InstructedDiscs

NEUTRAL = "a white point and two discs"
_POINT_M = 0.12  # radius of the painted point, as `TwoDiscsVectorEnv` paints it
_DISTANCES = (("on", 1.0), ("beside", 2.0), ("near", 4.0), ("far from", np.inf))  # at most so many radii


@dataclass(frozen=True)
class DiscCaptions(SceneCaptions):
    """Scenes of `InstructedDiscs` with sentences about the distance of the point from one of the discs.

    A sentence says that the point is on, beside, near or far from the red or the blue disc; another one is `NEUTRAL`.

    Args:
        sim: the scenes' sizes.
        neutral: share of the scenes with the neutral sentence.
    """

    sim: InstructedDiscs = field(default_factory=InstructedDiscs)
    neutral: float = 0.1

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, list[str]]:
        """Pictures uint8 [count, S, S, 3] and a sentence for each; each of the distances is drawn as often."""
        radius = self.sim.radius_m
        places = np.stack([draw_places(rng, radius) for _ in range(count)])  # [count, 3, 2] m
        named = rng.integers(len(COLOURS), size=count)
        # the point at a drawn distance from the named disc, where that is in the room
        bounds = [0.0, *(most * radius for _, most in _DISTANCES[:-1]), 1.5]
        kind = rng.integers(len(_DISTANCES), size=count)
        length = rng.uniform(np.array(bounds)[kind], np.array(bounds)[kind + 1])
        angle = rng.uniform(0, 2 * np.pi, count)
        disc = places[np.arange(count), 1 + named]
        places[:, 0] = (disc + length[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)).clip(-1, 1)
        distance = np.linalg.norm(places[:, 0] - disc, axis=1)
        sentences = [self.describe(d, int(colour)) for d, colour in zip(distance, named)]
        for i in np.flatnonzero(rng.random(count) < self.neutral):
            sentences[i] = NEUTRAL
        return paint(places[:, [1, 2, 0]], (radius, radius, _POINT_M), self.sim.image_size), sentences

    def describe(self, distance: float, colour: int) -> str:
        """The sentence for a distance from the disc of this colour, metres."""
        word = next(word for word, most in _DISTANCES if distance <= most * self.sim.radius_m)
        return f"the white point is {word} the {COLOURS[colour]} disc"

    def goal_of(self, instruction: str) -> str:
        """The sentence about the state in which an instruction is followed."""
        if instruction not in SENTENCES:
            raise ValueError(f"captions: no goal is known for the instruction {instruction!r}; known: {SENTENCES}")
        return self.describe(0.0, SENTENCES.index(instruction))
