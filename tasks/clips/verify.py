"""Verify intervals, counts and orders of frames."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.checks import final_line


def verify_interval(text: str, answer: tuple[int, int], frames: int) -> dict[str, float]:
    """Score the interval on the final line, "3-5" for the frames 3, 4 and 5.

    format: 1 if it is first-last inside of the clip. iou: `interval_iou`, frames as whole seconds. exact: iou is 1.
    """
    match = re.fullmatch("([0-9]{1,3})-([0-9]{1,3})", final_line(text))
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    well_formed = 1 <= first <= last <= frames
    overlap = interval_iou((first - 1, last), (answer[0] - 1, answer[1])) if well_formed else 0.0
    return {"exact": float(overlap == 1), "iou": overlap, "format": float(well_formed)}


def find_complement(interval: tuple[int, int], frames: int) -> tuple[int, int] | None:
    """Return the first and last of the frames outside of an interval; None unless they are an interval, too."""
    first, last = interval
    if first > 1 and last == frames:
        return 1, first - 1
    return (last + 1, frames) if first == 1 and last < frames else None


def verify_frame(text: str, answer: int, frames: int) -> dict[str, float]:
    """exact: 1 if the final line is the number of the right frame; format: 1 if it is that of any frame."""
    final = final_line(text)
    well_formed = re.fullmatch("[1-9][0-9]{0,2}", final) is not None and int(final) <= frames
    return {"exact": float(final == str(answer)), "format": float(well_formed)}


def verify_counts(text: str, answer: Sequence[int]) -> dict[str, float]:
    """Score counts on the final line, such as "3,1,4". counts: `count_score`; format: as many numbers as asked for."""
    final = final_line(text)
    well_formed = re.fullmatch(rf"[0-9]{{1,3}}(,[0-9]{{1,3}}){{{len(answer) - 1}}}", final) is not None
    counts = [int(number) for number in final.split(",")] if well_formed else []
    score = count_score(counts, answer)
    return {"exact": float(counts == list(answer)), "counts": score, "format": float(well_formed)}


def verify_order(text: str, answer: Sequence[int]) -> dict[str, float]:
    """Score an order on the final line, such as "3 1 2". order: `order_score`; format: it orders the numbers from 1.

    The order of the film that runs backwards counts as well, because nothing in the frames tells the two apart.
    """
    final, count = final_line(text), len(answer)
    well_formed = re.fullmatch(rf"[1-9][0-9]?( [1-9][0-9]?){{{count - 1}}}", final) is not None
    order = [int(number) for number in final.split(" ")] if well_formed else []
    score = max(order_score(order, right) for right in (answer, [count + 1 - place for place in answer]))
    valid = sorted(order) == list(range(1, count + 1))
    return {"exact": float(score == 1), "order": score, "format": float(valid)}


def interval_iou(interval: tuple[float, float], other: tuple[float, float]) -> float:
    """Intersection over union of two intervals (start, end); 0 if start >= end.

    Source: TimeLens, "Rethinking Video Temporal Grounding with Multimodal LLMs", 2025.
    """
    if interval[0] >= interval[1]:
        return 0.0
    shared = max(0.0, min(interval[1], other[1]) - max(interval[0], other[0]))
    return shared / (interval[1] - interval[0] + other[1] - other[0] - shared)


def count_score(counts: Sequence[int], answer: Sequence[int]) -> float:
    """mean_k max(0, 1 - |p_k - g_k| / max(g_k, 1)) of counts p and right ones g; 0 for another number of them.

    Source: VideoSSR, "Video Self-Supervised Reinforcement Learning", 2025, counting reward.
    """
    if len(counts) != len(answer):
        return 0.0
    return sum(max(0.0, 1 - abs(p - g) / max(g, 1)) for p, g in zip(counts, answer)) / len(answer)


def order_score(order: Sequence[int], answer: Sequence[int]) -> float:
    """1 - sum_c |i_c - j_c| / floor(n^2 / 2), with i_c and j_c where number c stands in the order and in the answer.

    0 for a non-permutation.

    Source: VideoSSR, "Video Self-Supervised Reinforcement Learning", 2025, jigsaw reward.
    """
    if sorted(order) != sorted(answer):
        return 0.0
    distance = sum(abs(order.index(number) - answer.index(number)) for number in answer)
    return 1 - distance / (len(answer) ** 2 // 2)
