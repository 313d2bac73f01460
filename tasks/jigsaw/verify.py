"""Verify the order of tiles, the relation of two tiles, and the box of a piece."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mmrl.rewards.boxes import iou
from tasks.checks import final_line


def verify(text: str, answer: Sequence[int]) -> dict[str, float]:
    """format: 1 if the final line orders the numbers from 1; tiles: fraction of tiles in their place; exact: all.

    A line that names a place twice scores no tiles: "1 1 1 1" would otherwise be worth a quarter without looking.
    """
    final, count = final_line(text), len(answer)
    pattern = rf"[1-9][0-9]{{0,2}}( [1-9][0-9]{{0,2}}){{{count - 1}}}"
    places = [int(place) for place in final.split(" ")] if re.fullmatch(pattern, final) else []
    well_formed = sorted(places) == list(range(1, count + 1))
    right = sum(place == target for place, target in zip(places, answer)) if well_formed else 0
    return {"exact": float(right == count), "tiles": right / count, "format": float(well_formed)}


def verify_choice(text: str, answer: str, count: int) -> dict[str, float]:
    """exact: 1 if the final line is the right letter; format: 1 if it is one of the first `count` letters."""
    final = final_line(text)
    return {"exact": float(final == answer), "format": float(len(final) == 1 and 0 <= ord(final) - 65 < count)}


def verify_box(text: str, answer: Sequence[int], size: int) -> dict[str, float]:
    """format: 1 if the final line is one box inside of the image; iou: with the right box; exact: 1 if iou >= 0.5."""
    final = final_line(text)
    box = [int(edge) for edge in final.split(" ")] if re.fullmatch("[0-9]{1,5}( [0-9]{1,5}){3}", final) else []
    well_formed = bool(box) and box[0] < box[2] <= size and box[1] < box[3] <= size
    overlap = iou(box, answer) if well_formed else 0.0
    return {"exact": float(overlap >= 0.5), "iou": overlap, "format": float(well_formed)}
