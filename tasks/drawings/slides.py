"""Slides with controlled defects: give a score, name the defects, or choose the better of two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.generated import GeneratedTask, ask_about_images

DEFECTS = ("overlap", "misaligned", "contrast")
"""One bar covers another; one does not begin at the margin; one is hardly darker than the slide."""
SIZE = 32
_NUMBER = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3})?")


@dataclass(frozen=True)
class Slide:
    """Four bars of text below each other, each (width, shade), and the bar that each defect spoils."""

    margin: int
    bars: tuple[tuple[int, int], ...]
    defects: Mapping[str, int] = field(default_factory=dict)

    @property
    def quality(self) -> float:
        """10 without a defect, 3 less for each: from 1 to 10."""
        return 10.0 - 3 * len(self.defects)

    def render(self) -> np.ndarray:
        """Draw the slide, uint8 [32, 32, 3]."""
        image = np.full((SIZE, SIZE, 3), 255, np.uint8)
        for place, (width, shade) in enumerate(self.bars):
            x = self.margin + 5 * (self.defects.get("misaligned") == place)
            y = 3 + 7 * place - 5 * (self.defects.get("overlap") == place)
            image[y : y + 4, x : x + width] = 225 if self.defects.get("contrast") == place else shade
        return image


@dataclass(frozen=True, kw_only=True)
class Slides(GeneratedTask):
    """Judge slides of 32 pixels with up to three defects. Source of the three kinds of questions and their thresholds:
    EvoPresent, 2025, arXiv:2510.05571.

    Args:
        kind: "score", a number from 1 to 10 with an error below `tolerance`; "diagnose", the initials of the defects
            with an F1 above `min_f1`; "compare", which of two slides has fewer defects.
        tolerance: bound of the error of a score.
        min_f1: bound of the F1 of the defects.
    """

    kind: Literal["score", "diagnose", "compare"] = "score"
    tolerance: float = 0.25
    min_f1: float = 0.5

    name = "slides"

    def draw(self, rng: np.random.Generator) -> tuple[Slide, ...] | None:
        slides = tuple(draw_slide(rng) for _ in range(2 if self.kind == "compare" else 1))
        return None if len({slide.quality for slide in slides}) < len(slides) else slides

    def split_key(self, problem: tuple[Slide, ...]) -> str:
        return repr((problem[0].margin, problem[0].bars))

    def write_prompt(self, problem: tuple[Slide, ...], key: str) -> Prompt:
        first, question = problem[0], {"score": "score?", "diagnose": "defects?", "compare": "better?"}[self.kind]
        answer = {
            "score": f"{first.quality:g}",
            "diagnose": " ".join(name[0] for name in DEFECTS if name in first.defects) or "none",
            "compare": "1" if first.quality > problem[-1].quality else "2",
        }[self.kind]
        images, info = tuple(slide.render() for slide in problem), {"slide": first, "quality": first.quality}
        return Prompt(key, ask_about_images(question, len(problem)), images, answer, info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the answer is near enough; format: it is a number, initials of defects or none, or 1 or 2."""
        text, right = final_line(answer), str(prompt.answer)
        if self.kind == "score":
            score = read_score(text)
            return _scores(score is not None and is_near(score, float(right), self.tolerance), score is not None)
        if self.kind == "diagnose":
            defects, gold = read_defects(text), read_defects(right) or frozenset()
            return _scores(defects is not None and set_f1(defects, gold) > self.min_f1, defects is not None)
        return _scores(text == right, text in ("1", "2"))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(str(self[index].answer))

    def revise(self, prompt: Prompt, rng: np.random.Generator) -> Prompt:
        """Return the prompt of the slide after a random change: more often a repaired defect than a new one."""
        slide: Slide = prompt.info["slide"]
        missing = [name for name in DEFECTS if name not in slide.defects]
        if slide.defects and (rng.random() < 0.7 or not missing):
            defect = sorted(slide.defects)[int(rng.integers(len(slide.defects)))]
            defects = {name: place for name, place in slide.defects.items() if name != defect}
        else:
            defects = {**slide.defects, missing[int(rng.integers(len(missing)))]: int(rng.integers(1, 4))}
        return self.write_prompt((replace(slide, defects=defects),), prompt.key)


def _scores(exact: bool, well_formed: bool) -> dict[str, float]:
    return {"exact": float(exact), "format": float(well_formed)}


def draw_slide(rng: np.random.Generator) -> Slide:
    """Draw a slide on which each number of defects is equally likely."""
    bars = tuple((int(width), int(shade)) for width, shade in zip(rng.integers(12, 21, 4), rng.integers(0, 110, 4)))
    names = rng.permutation(DEFECTS)[: int(rng.integers(4))].tolist()
    return Slide(int(rng.integers(2, 7)), bars, {name: int(rng.integers(1, 4)) for name in names})


def read_score(text: str) -> float | None:
    """Return a score from 1 to 10; None for another text."""
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    return value if 1 <= value <= 10 else None


def is_near(score: float, right: float, tolerance: float) -> bool:
    """Whether |score - right| < tolerance."""
    return abs(score - right) < tolerance


def read_defects(text: str) -> frozenset[str] | None:
    """Return the initials of defects in a text such as "o c", none for "none"; None for another text."""
    initials = [] if text == "none" else text.split()
    valid = text == "none" or (bool(initials) and set(initials) <= {name[0] for name in DEFECTS})
    return frozenset(initials) if valid else None


def set_f1(found: Set, gold: Set) -> float:
    """2 |found and gold| / (|found| + |gold|), 1 for two empty sets."""
    return 2 * len(found & gold) / (len(found) + len(gold)) if found or gold else 1.0
