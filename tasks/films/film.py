"""Films as captions: what every animal does in every frame, a question of two hops, and three filters of questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

ANIMALS = ("cat", "dog", "fox", "cow", "hen", "pig")
VERBS = ("sits", "eats", "runs", "naps", "digs", "hops")


@dataclass(frozen=True)
class Film:
    """What animals do in each frame, and the question what `asked` does when `event` happens.

    Args:
        frames: for each frame the verb of every animal, by its name.
        event: animal and verb of another animal.
        asked: the animal that the question is about.
    """

    frames: tuple[Mapping[str, str], ...]
    event: tuple[str, str]
    asked: str

    def find(self, animal: str, verb: str) -> list[int]:
        """Return the numbers, from 1, of the frames in which an animal does something."""
        return [number for number, frame in enumerate(self.frames, 1) if frame.get(animal) == verb]

    @property
    def captions(self) -> list[str]:
        """The detailed captions: one line a frame."""
        return [f"{number} {describe(frame)}" for number, frame in enumerate(self.frames, 1)]

    @property
    def summary(self) -> dict[str, str]:
        """The summary: what each animal does in most frames, of equal counts the first one."""
        return {a: Counter(frame[a] for frame in self.frames).most_common(1)[0][0] for a in self.frames[0]}

    @property
    def question(self) -> str:
        return f"{self.asked} when {' '.join(self.event)}?"

    @property
    def answer(self) -> str:
        return self.frames[self.find(*self.event)[0] - 1][self.asked]


def describe(frame: Mapping[str, str]) -> str:
    """Write a frame as a caption: `cat sits, fox runs`."""
    return ", ".join(f"{animal} {verb}" for animal, verb in frame.items())


def is_useful(film: Film) -> bool:
    """Whether a question passes three filters: one answer, not in its own text, and not in the summary.

    The event happens in one frame; the answer is not the verb that the question names; the answer is not what the
    summary says about the asked animal. Source: ReWatch-R1, 2025, filters of questions, arXiv:2509.23652.
    """
    if len(film.find(*film.event)) != 1:
        return False
    return film.answer != film.event[1] and film.answer != film.summary[film.asked]


def draw_film(rng: np.random.Generator, frames: int, animals: int) -> Film | None:
    """Draw a film and one of its useful questions; None where it has none."""
    names = [ANIMALS[i] for i in rng.permutation(len(ANIMALS))[:animals]]
    states = tuple(
        {name: VERBS[i] for name, i in zip(names, row)} for row in rng.integers(len(VERBS), size=(frames, animals))
    )
    events = {(name, verb): None for frame in states for name, verb in frame.items()}
    films = (Film(states, event, animal) for event in events for animal in names if animal != event[0])
    useful = [film for film in films if is_useful(film)]
    return useful[int(rng.integers(len(useful)))] if useful else None


def draw_frame(rng: np.random.Generator, animals: Sequence[str]) -> dict[str, str]:
    """Draw what animals do in a frame that is not in the film."""
    return {animal: VERBS[int(rng.integers(len(VERBS)))] for animal in animals}
