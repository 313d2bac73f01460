"""New names of the colours and kinds of objects of BabyAI, for tests of generalisation to words that were not seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mmrl.core.rng import derive_rng

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
KINDS = ("ball", "box", "key", "door")


def read_names(names: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the names that may stand for each word; a single text is one name.

    Raises:
        ValueError: a word is none of BabyAI's, or a name is no word, is a word of BabyAI or stands for two words.
    """
    read = {word: (choices,) if isinstance(choices, str) else tuple(choices) for word, choices in names.items()}
    words = (*COLORS, *KINDS)
    if unknown := [word for word in read if word not in words]:
        raise ValueError(f"task babyai: names has {unknown}; it renames {', '.join(words)}")
    if empty := [word for word, choices in read.items() if not choices]:
        raise ValueError(f"task babyai: names gives no name for {empty}")
    every = [name for choices in read.values() for name in choices]
    for name in every:
        if not re.fullmatch(r"[^\W\d_]+", name) or name in words or every.count(name) > 1:
            raise ValueError(
                f"task babyai: the name {name!r} has to be a word of letters, none of BabyAI's own, and the only one "
                "of its kind in names"
            )
    return read


def choose_names(names: Mapping[str, tuple[str, ...]], seed: int) -> dict[str, str]:
    """Draw the name of each word for the initial state of a seed."""
    rng = derive_rng("babyai names", seed)
    return {word: choices[int(rng.integers(len(choices)))] for word, choices in names.items()}


def rename(text: str, names: Mapping[str, str]) -> str:
    """Replace whole words of a text by their names."""
    if not names:
        return text
    return re.sub(rf"\b({'|'.join(names)})\b", lambda match: names[match[1]], text)
