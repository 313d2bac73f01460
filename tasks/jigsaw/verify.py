"""Verify the order of four tiles."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.checks import final_line


def verify(text: str, answer: Sequence[int]) -> dict[str, float]:
    """format: 1 if the final line is an order of 1 2 3 4; tiles: fraction of tiles in their place; exact: all.

    A line that names a place twice scores no tiles: "1 1 1 1" would otherwise be worth a quarter without looking.
    """
    final = final_line(text)
    places = [int(place) for place in final.split(" ")] if re.fullmatch("[1-4]( [1-4]){3}", final) else []
    well_formed = sorted(places) == [1, 2, 3, 4]
    right = sum(place == wanted for place, wanted in zip(places, answer)) if well_formed else 0
    return {"exact": float(right == 4), "tiles": right / 4, "format": float(well_formed)}
