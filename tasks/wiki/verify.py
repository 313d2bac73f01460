"""Verify a short answer in words."""

from __future__ import annotations

import re
import string


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces (SQuAD normalisation).

    Source: Rajpurkar et al., "SQuAD", 2016, its evaluation script.
    """
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def verify(text: str, answer: str) -> dict[str, float]:
    """exact: 1 if the normalised answer equals the text in the last <answer> pair, or the whole text."""
    pairs = [part.partition("<answer>") for part in text.split("</answer>")[:-1]]
    result = [inside for _, tag, inside in pairs if tag]
    return {"exact": float(normalise(result[-1] if result else text) == normalise(answer))}
