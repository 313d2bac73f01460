"""Write the next sentence of a text, or the sentence between two others; a rule judges whether the text goes on so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Self

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.generated import ask_user

PACKAGE = "transformers"
"""The package whose licence is the text where no file is given: Apache License 2.0."""
GAP = "[...]"
_END = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z(\"'])")


@dataclass(frozen=True, kw_only=True)
class Passages(AnswerTask):
    """Raw text as a task: the answer earns 1 if the text goes on with it, for one or more whole sentences.

    RLPT lets a model judge whether the answer is a valid beginning of what follows; here the words have to be equal.
    Training and held-out problems are of two parts of the text that share no sentence.
    Source: Li et al., "Reinforcement Learning on Pre-Training Data", arXiv 2509.19249, section 3.

    Args:
        path: a text file; None for a licence that is installed with a package.
        kind: "next" shows the sentences before, "middle" also the one after.
        context: sentences before the asked one that are shown, at most.
        following: sentences of the text with which an answer is compared.
        split: "train" or "held_out".
        held_out_fraction: share of the sentences, from the end of the text, that is held out.
    """

    path: str | None = None
    kind: str = "next"
    context: int = 3
    following: int = 3
    split: str = "train"
    held_out_fraction: float = 0.25

    name = "passages"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        if self.kind not in ("next", "middle"):
            raise ValueError(f"task {self.name!r}: kind must be next or middle, got {self.kind!r}")
        check_at_least(1, f"task {self.name!r}:", context=self.context, following=self.following)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of this split."""
        sentences = read_sentences(self.path)
        cut = round(len(sentences) * (1 - self.held_out_fraction))
        return sentences[:cut] if self.split == "train" else sentences[cut:]

    def __len__(self) -> int:
        return max(len(self.sentences) - 2, 0)  # each problem has a sentence before and after it

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        sentences, at = self.sentences, index + 1
        lines = [*sentences[max(0, at - self.context) : at], GAP]
        lines += [sentences[at + 1]] if self.kind == "middle" else []
        following = list(sentences[at : at + (1 if self.kind == "middle" else self.following)])
        key = f"{self.name}/{self.split}/{index}"
        return Prompt(key, ask_user("\n".join(lines)), answer=following[0], info={"following": following})

    def on(self, split: str) -> Self:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the words are those of one or more following sentences; words: share of the next sentence's words that
        the answer begins with, less what it has more; format: not empty.
        """
        words, following = read_words(answer), prompt.info["following"]
        exact = is_prefix(words, following)
        right = read_words(following[0])
        equal = next((i for i, (a, b) in enumerate(zip(words, right)) if a != b), min(len(words), len(right)))
        share = 1.0 if exact else equal / max(len(words), len(right))
        return {"exact": float(exact), "words": share, "format": float(bool(words))}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        sentences = self.sentences
        return self.write_answer(sentences[int(rng.integers(len(sentences)))])


def read_words(text: str) -> list[str]:
    """Words of a text, without the punctuation at its end."""
    return text.rstrip(".!?;:, \t\n").split()


def is_prefix(words: Sequence[str], following: Sequence[str]) -> bool:
    """Whether the words are those of the first, the first two, ... of the sentences that follow; never without a word.

    Words in the middle keep their punctuation, the last one loses it.
    """
    return bool(words) and any(
        list(words) == read_words(" ".join(following[: count + 1])) for count in range(len(following))
    )


@lru_cache(maxsize=8)
def read_sentences(path: str | None, least: int = 4) -> tuple[str, ...]:
    """Read the distinct sentences of a text with at least `least` words, white space as single spaces.

    Raises:
        ValueError: there is no such text, or it has fewer than 12 sentences.
    """
    text = _read_licence() if path is None else Path(path).read_text(encoding="utf-8")
    sentences = [" ".join(part.split()) for paragraph in text.split("\n\n") for part in _END.split(paragraph)]
    unique = tuple(dict.fromkeys(s for s in sentences if len(s.split()) >= least and any(map(str.isalpha, s))))
    if len(unique) < 12:
        raise ValueError(
            f"task 'passages': {path or PACKAGE} has {len(unique)} sentences; give a text with at least 12"
        )
    return unique


def _read_licence() -> str:
    try:
        licences = [file for file in files(PACKAGE) or () if file.name == "LICENSE"]
    except PackageNotFoundError:
        licences = []
    if not licences:
        raise ValueError(f"task 'passages': the package {PACKAGE} has no LICENSE; set task.path to a text file")
    return licences[0].read_text()
