"""Judges a short answer in words."""

from __future__ import annotations

import re
import string

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def normalise(text: str) -> str:
    """Lower case, punctuation deleted, articles deleted, single spaces: how open questions are commonly judged.

    Source: Rajpurkar et al., "SQuAD", 2016, its evaluation script.
    """
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def verify(text: str, answer: str) -> dict[str, float]:
    """exact: the normalised answer is the right one; it stands in the last <answer> pair, or is all of the text."""
    found = ANSWER.findall(text)
    return {"exact": float(normalise(found[-1] if found else text) == normalise(answer))}
