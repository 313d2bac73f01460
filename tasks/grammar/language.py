"""The language: sentences are syllables of a consonant and a vowel; requests state what a sentence must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONSONANTS, VOWELS = "bdk", "aei"
LETTERS = CONSONANTS + VOWELS
REFUSAL = "no"
BANNED = "x"
"""A request for this token must be refused, and no sentence has it."""
_KINDS = {"first": "^", "last": "$"}


def is_sentence(text: str, longest: int) -> bool:
    """Whether a text is one or more syllables, a consonant and a vowel each, of at most `longest` letters."""
    consonants, vowels = text[::2], text[1::2]
    return (
        0 < len(text) <= longest
        and len(consonants) == len(vowels)
        and set(consonants) <= set(CONSONANTS)
        and set(vowels) <= set(VOWELS)
    )


@dataclass(frozen=True)
class Constraints:
    """What a sentence must have.

    Args:
        counts: how often a letter stands in it, by letter.
        length: its letters; None for any number.
        first: its first letter; None for any.
        last: its last letter; None for any.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    length: int | None = None
    first: str | None = None
    last: str | None = None

    @property
    def text(self) -> str:
        """The request as a prompt states it: b2 a0 n6 ^d $e?"""
        counts = [f"{letter}{count}" for letter, count in sorted(self.counts.items())]
        length = [] if self.length is None else [f"n{self.length}"]
        ends = [f"{sign}{getattr(self, kind)}" for kind, sign in _KINDS.items() if getattr(self, kind) is not None]
        return " ".join([*counts, *length, *ends]) + "?"

    @property
    def is_banned(self) -> bool:
        """Whether it asks for the banned token."""
        return BANNED in self.counts

    def check(self, text: str) -> list[bool]:
        """Return whether each constraint holds of a text, in the order of `text`."""
        counts = [text.count(letter) == count for letter, count in sorted(self.counts.items())]
        length = [] if self.length is None else [len(text) == self.length]
        first = [] if self.first is None else [text[:1] == self.first]
        return [*counts, *length, *first, *([] if self.last is None else [text[-1:] == self.last])]

    def is_possible(self, longest: int) -> bool:
        """Whether a sentence of at most `longest` letters has all of it.

        Consonants and vowels are chosen apart: of each kind there is one per syllable, so that some number of syllables
        must hold the stated counts, with a place for the first or the last letter.
        """
        if self.is_banned:
            return False
        sizes = range(1, longest // 2 + 1)
        return any(
            self.length in (None, 2 * size)
            and self._fits(CONSONANTS, self.first, size)
            and self._fits(VOWELS, self.last, size)
            for size in sizes
        )

    def _fits(self, kind: str, end: str | None, size: int) -> bool:
        """Whether `size` letters of a kind can have the stated counts, and the letter at the end."""
        stated = {letter: count for letter, count in self.counts.items() if letter in kind}
        total = sum(stated.values()) + (end is not None and end in kind and end not in stated)
        exact = len(stated) == len(kind)
        return (
            (end is None or (end in kind and stated.get(end, 1) > 0))
            and total <= size
            and (not exact or sum(stated.values()) == size)
        )
