"""The housekeeper, a character who knows the house and answers questions in words."""

from __future__ import annotations

import re

from tasks.house.layout import BOX, KEY, HousePlan

UNKNOWN = "I do not know."


def answer_question(layout: HousePlan, question: str) -> str:
    """Answer a question about the house.

    The housekeeper knows where each thing is ("Where is the apple?"), what is needed for the errand ("What do I
    need?"), how the box opens, and what has to be done ("What shall I do?").

    Returns:
        Sentences of the form "The key is in the attic.", "You need to have the key." or "The apple is to be put on the
        table."; `UNKNOWN` for every other question.
    """
    words = set(re.findall(r"\w+", question.lower()))
    if "where" in words:
        places = [f"The {name} is in the {layout.places[name]}." for name in layout.places if name in words]
        return " ".join(places) or UNKNOWN
    if words & {"open", "opens"}:
        return f"You need to have the {KEY}." if layout.locked else UNKNOWN
    if "need" in words:
        needed = [KEY, layout.item] if layout.locked else [layout.item]
        closed = [f"The {layout.item} is in the {BOX}."] if layout.locked else []
        return " ".join([*(f"You need to have the {name}." for name in needed), *closed])
    if words & {"do", "task", "errand", "goal"}:
        return f"The {layout.item} is to be put on the {layout.target}."
    return UNKNOWN
