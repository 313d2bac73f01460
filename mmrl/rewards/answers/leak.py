"""Whether a text gives an answer away."""

from __future__ import annotations

import re


def leaks(text: str, answer: str) -> bool:
    """Whether the answer stands in the text as whole words, in any case."""
    return re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text, re.IGNORECASE) is not None
