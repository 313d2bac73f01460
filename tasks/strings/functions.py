"""Atomic functions on words of lower-case letters, and their compositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

VOWELS = "aeiou"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_NEXT = str.maketrans(_ALPHABET, _ALPHABET[1:] + "a")
_PREVIOUS = str.maketrans(_ALPHABET, "z" + _ALPHABET[:-1])
_MIRROR = str.maketrans(_ALPHABET, _ALPHABET[::-1])
_NEXT_VOWEL = str.maketrans(VOWELS, VOWELS[1:] + VOWELS[0])


def _swap_ends(word: str) -> str:
    return word if len(word) < 2 else word[-1] + word[1:-1] + word[0]


def _swap_neighbours(word: str) -> str:
    return "".join(word[i : i + 2][::-1] for i in range(0, len(word), 2))


FUNCTIONS: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "A": ("reverses the word", lambda w: w[::-1]),
    "B": ("removes the first letter", lambda w: w[1:]),
    "C": ("removes the last letter", lambda w: w[:-1]),
    "D": ("writes each letter twice", lambda w: "".join(c * 2 for c in w)),
    "E": ("writes the word twice", lambda w: w * 2),
    "F": ("moves the first letter to the end", lambda w: w[1:] + w[:1]),
    "G": ("moves the last letter to the front", lambda w: w[-1:] + w[:-1]),
    "H": ("sorts the letters from a to z", lambda w: "".join(sorted(w))),
    "I": ("sorts the letters from z to a", lambda w: "".join(sorted(w, reverse=True))),
    "J": ("removes the vowels", lambda w: "".join(c for c in w if c not in VOWELS)),
    "K": ("removes the consonants", lambda w: "".join(c for c in w if c in VOWELS)),
    "L": ("replaces each letter by the next one, z by a", lambda w: w.translate(_NEXT)),
    "M": ("replaces each letter by the one before, a by z", lambda w: w.translate(_PREVIOUS)),
    "N": ("appends the first letter", lambda w: w + w[:1]),
    "O": ("puts the last letter in front as well", lambda w: w[-1:] + w),
    "P": ("swaps the first and the last letter", _swap_ends),
    "Q": ("keeps the first of equal letters", lambda w: "".join(dict.fromkeys(w))),
    "R": ("keeps the letters at odd places: the first, the third and so on", lambda w: w[::2]),
    "S": ("keeps the letters at even places: the second, the fourth and so on", lambda w: w[1::2]),
    "T": ("appends the reversed word", lambda w: w + w[::-1]),
    "U": ("swaps the two letters of each pair from the start", _swap_neighbours),
    "V": ("keeps the first half, the middle letter included", lambda w: w[: (len(w) + 1) // 2]),
    "W": ("keeps the second half, without the middle letter", lambda w: w[(len(w) + 1) // 2 :]),
    "X": ("replaces each vowel by the next vowel, u by a", lambda w: w.translate(_NEXT_VOWEL)),
    "Y": ("replaces a by z, b by y and so on", lambda w: w.translate(_MIRROR)),
}
"""What each function does, and the function, by its name."""


def apply_chain(chain: Sequence[str], word: str) -> list[str]:
    """Apply a chain of functions, the outermost first as it is written; return the word after each, in order.

    The chain ("A", "N") is A(N(word)).
    """
    words = []
    for name in reversed(chain):
        word = FUNCTIONS[name][1](word)
        words.append(word)
    return words
