"""Measures of boxes and points in images: IoU, GIoU, closeness of edges, average precision.

A box is (x1, y1, x2, y2) with x1 < x2 and y1 < y2, in any unit; edges are real numbers, so that the box of one pixel is
(x, y, x + 1, y + 1). A point is (x, y).
"""

from __future__ import annotations

from collections.abc import Sequence

Box = Sequence[float]
THRESHOLDS = tuple(0.5 + 0.05 * step for step in range(10))
"""IoU thresholds of COCO: 0.50, 0.55, ..., 0.95."""


def area(box: Box) -> float:
    """Width times height.

    Raises:
        ValueError: the edges are not in order.
    """
    x1, y1, x2, y2 = box
    if not (x1 < x2 and y1 < y2):
        raise ValueError(f"a box is (x1, y1, x2, y2) with x1 < x2 and y1 < y2, got {tuple(box)}")
    return (x2 - x1) * (y2 - y1)


def intersection(box: Box, other: Box) -> float:
    """Area that two boxes share."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def iou(box: Box, other: Box) -> float:
    """Intersection over union, in [0, 1]."""
    shared = intersection(box, other)
    return shared / (area(box) + area(other) - shared)


def giou(box: Box, other: Box) -> float:
    """Generalised IoU, in (-1, 1]: IoU - (C - U) / C with the union U and the smallest box around both, of area C.

    Source: Rezatofighi et al., "Generalized Intersection over Union", arXiv 1902.09630, algorithm 1.
    """
    shared = intersection(box, other)
    union = area(box) + area(other) - shared
    around = (max(box[2], other[2]) - min(box[0], other[0])) * (max(box[3], other[3]) - min(box[1], other[1]))
    return shared / union - (around - union) / around


def centre(box: Box) -> tuple[float, float]:
    """Point in the middle of a box."""
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def contains(box: Box, point: Sequence[float]) -> bool:
    """Whether a point lies in a box; the left and upper edges belong to it, the right and lower ones do not."""
    return box[0] <= point[0] < box[2] and box[1] <= point[1] < box[3]


def edge_closeness(box: Box, other: Box, width: float, height: float) -> float:
    """Harmonic mean of the closeness 1 - |distance| / D of the four edges, D the width or height of the image.

    Source: Zhou et al., "GUI-G1", arXiv 2505.15810, section 3: R_box = 4 / sum_c 1 / (1 - |g_c - p_c| / D_c).
    """
    closeness = [1 - abs(a - b) / size for a, b, size in zip(box, other, (width, height, width, height))]
    return 0.0 if min(closeness) <= 0 else 4 / sum(1 / each for each in closeness)


def grounding_reward(box: Box, truth: Box, width: float, height: float) -> float:
    """GUI-G1's reward of one box: hit + IoU / 4 + edge closeness / 8, at most 1.375; a hit has its centre in `truth`.

    Source: Zhou et al., "GUI-G1", arXiv 2505.15810, sections 3.3 and 4.
    """
    hit = contains(truth, centre(box))
    return hit + 0.25 * iou(box, truth) + 0.125 * edge_closeness(box, truth, width, height)


def average_precision(boxes: Sequence[Box], truth: Sequence[Box], threshold: float = 0.5) -> float:
    """Area under the precision-recall curve of boxes in the order of their confidence, highest first.

    Each box takes the free true box with the largest IoU if that reaches the threshold, else it is a false alarm. The
    precision at a recall is the best one at this recall or a higher one. Without any true box it is 1 if no box is
    given and 0 otherwise.
    """
    if not truth or not boxes:
        return float(not truth and not boxes)
    free = list(range(len(truth)))
    points: list[tuple[float, float]] = []
    right = 0
    for count, box in enumerate(boxes, start=1):
        best = max(free, key=lambda i: iou(box, truth[i]), default=None)
        if best is not None and iou(box, truth[best]) >= threshold:
            free.remove(best)
            right += 1
        points.append((right / len(truth), right / count))
    total, recall = 0.0, 0.0
    for i, (reached, _) in enumerate(points):
        if reached > recall:
            total += (reached - recall) * max(precision for _, precision in points[i:])
            recall = reached
    return total


def mean_average_precision(boxes: Sequence[Box], truth: Sequence[Box]) -> float:
    """Average precision of one class, averaged over COCO's IoU thresholds from 0.5 to 0.95."""
    return sum(average_precision(boxes, truth, threshold) for threshold in THRESHOLDS) / len(THRESHOLDS)


def count_factor(num_boxes: int, num_truth: int) -> float:
    """VLM-R1's factor against padding: min(1, true boxes / given boxes); 1 if there are none of both.

    Source: Shen et al., "VLM-R1", arXiv 2504.07615, section 3.2.
    """
    return 1.0 if num_boxes <= num_truth else num_truth / num_boxes


def parse_box(text: str, limit: float) -> tuple[int, int, int, int] | None:
    """Read exactly one box "x1 y1 x2 y2" of whole numbers from 0 to `limit` with x1 < x2 and y1 < y2, else None."""
    numbers = parse_numbers(text, 4, limit)
    if numbers is None or not (numbers[0] < numbers[2] and numbers[1] < numbers[3]):
        return None
    return numbers[0], numbers[1], numbers[2], numbers[3]


def parse_numbers(text: str, count: int, limit: float) -> list[int] | None:
    """Read exactly `count` whole numbers from 0 to `limit`, of ASCII digits with single spaces between, else None."""
    words = text.split(" ", count)
    if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) <= 9 for word in words):
        return None
    numbers = [int(word) for word in words]
    return numbers if max(numbers) <= limit else None
