"""Token F1 of a short answer against the right ones, as SQuAD and Natural Questions compute it."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalise_words(text: str) -> list[str]:
    """Words of a text in lower case, without punctuation and articles (SQuAD normalisation).

    Source: Rajpurkar et al., "SQuAD", 2016, its evaluation script.
    """
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return _ARTICLES.sub(" ", plain).split()


def compute_f1(text: str, answer: str) -> float:
    """F1 = 2 P R / (P + R), with P and R the shares of the text's and of the answer's words that are in both.

    A word counts as often as it is in both. 0 without a common word.
    """
    words, right = normalise_words(text), normalise_words(answer)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right)) if common else 0.0


def token_f1(completion: str, answer: Any) -> float:
    """Largest F1 over the right answers: a text, or a list of texts that are all right."""
    answers = [answer] if isinstance(answer, str) else list(answer)
    return max((compute_f1(completion, str(each)) for each in answers), default=0.0)
