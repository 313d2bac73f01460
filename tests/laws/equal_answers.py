"""Answers that are written otherwise and are right: oracles for options whose verifiers accept several answers.

Each decides from the prompt and the expert's answer whether another text is as right, without the task's verifier.
"""

from __future__ import annotations

import io
import json
import re
import string
from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np

from mmrl.core.types import Prompt

Equality = Callable[[Prompt, str, str], bool]
"""Whether a text is as right as the expert's answer: a function of the prompt, the expert's answer and the text."""


def _numbers(text: str) -> list[int]:
    return list(map(int, re.findall("[0-9]+", text)))


def _overlap(box: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes x1 y1 x2 y2."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    inside = max(0, width) * max(0, height)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (box, other)]
    return inside / (sum(areas) - inside)


def is_point_inside(prompt: Prompt, right: str, text: str) -> bool:
    x, y = _numbers(text)
    x1, y1, x2, y2 = prompt.answer
    return x1 <= x <= x2 and y1 <= y <= y2


def is_middle_inside(prompt: Prompt, right: str, text: str) -> bool:
    x1, y1, x2, y2 = _numbers(text)
    return is_point_inside(prompt, right, f"{(x1 + x2) // 2} {(y1 + y2) // 2}")


def is_box_near(prompt: Prompt, right: str, text: str) -> bool:
    """Whether the one box of a text covers half of its union with the right one."""
    return len(_numbers(text)) == 4 and _overlap(_numbers(text), _numbers(right)) >= 0.5


def are_boxes_near(prompt: Prompt, right: str, text: str) -> bool:
    """Whether the boxes of a text are those of the right answer in some order, each near."""
    boxes, truth = ([_numbers(part) for part in each.split("; ")] for each in (text, right))
    return len(boxes) == len(truth) and any(
        all(_overlap(box, other) >= 0.5 for box, other in zip(order, truth)) for order in permutations(boxes)
    )


def is_same_json(prompt: Prompt, right: str, text: str) -> bool:
    return json.loads(text) == json.loads(right)


def are_same_numbers(prompt: Prompt, right: str, text: str) -> bool:
    return [int(part) for part in text.split(",")] == [int(part) for part in right.split(",")]


def is_same_picture(prompt: Prompt, right: str, text: str) -> bool:
    """Draw rectangles and circles of units as large as an eighth of the image, by their definition."""
    return np.array_equal(_paint(text), _paint(right))


def _paint(program: str, units: int = 8, scale: int = 8) -> np.ndarray:
    image = np.full((units * scale, units * scale), "", "<U8")
    for command in program.split("; "):
        kind, *numbers, colour = command.split(" ")
        for row, column in np.ndindex(image.shape):
            x, y = (column + 0.5) / scale, (row + 0.5) / scale
            a, b, c, *d = map(int, numbers)
            if (x - a) ** 2 + (y - b) ** 2 <= c**2 if kind == "circle" else a <= x < c and b <= y < d[0]:
                image[row, column] = colour
    return image


def is_same_svg(prompt: Prompt, right: str, text: str) -> bool:
    """Render both by resvg, with everything that an SVG may have."""
    import resvg_py
    from PIL import Image

    images = [Image.open(io.BytesIO(resvg_py.svg_to_bytes(svg_string=svg, width=32))) for svg in (right, text)]
    return images[0].size == images[1].size and images[0].tobytes() == images[1].tobytes()


def is_same_last_value(prompt: Prompt, right: str, text: str) -> bool:
    """Whether the last steps b=a+2=5 name one quantity and one value."""
    steps = [re.split("=", each.splitlines()[-1].replace(" ", "")) for each in (right, text)]
    return steps[0][0] == steps[1][0] and steps[0][-1] == steps[1][-1]


def is_right_program(prompt: Prompt, right: str, text: str) -> bool:
    """Run the program that a problem asks for, or that it gives on the answer, by the definition of its letters."""
    problem = prompt.info["problem"]
    program, *lists = problem.body
    if problem.kind == "induce":
        return [_run(text, given) for given in lists[::2]] == lists[1::2]
    return _run(program, text) == lists[1] if problem.kind == "abduce" else text == right


def _run(program: str, digits: str) -> str:
    """Reverse, sort, increase, double, dehead (first digit last), complement."""
    for letter in program:
        digits = {
            "r": lambda text: text[::-1],
            "s": lambda text: "".join(sorted(text)),
            "i": lambda text: "".join(str((int(d) + 1) % 10) for d in text),
            "d": lambda text: "".join(str(2 * int(d) % 10) for d in text),
            "h": lambda text: text[1:] + text[:1],
            "c": lambda text: "".join(str(9 - int(d)) for d in text),
        }[letter](digits)
    return digits


def is_same_side(prompt: Prompt, right: str, text: str) -> bool:
    """Whether a risk of one digit is on the right side of 1/2."""
    return (int(text.splitlines()[-1]) >= 5) == bool(prompt.answer)


def is_same_query(prompt: Prompt, right: str, text: str) -> bool:
    """Whether two queries differ in blanks and in = for == alone."""
    return re.sub(r"\s", "", text).replace("==", "=") == re.sub(r"\s", "", right).replace("==", "=")


def is_same_squad_answer(prompt: Prompt, right: str, text: str) -> bool:
    """SQuAD's exact match: without capitals, punctuation and articles."""
    words = [re.sub(f"[{re.escape(string.punctuation)}]", "", each.lower()).split() for each in (right, text)]
    return [w for w in words[0] if w not in ("a", "an", "the")] == [w for w in words[1] if w not in ("a", "an", "the")]


def is_same_sentence(prompt: Prompt, right: str, text: str) -> bool:
    """Whether two texts have the same words, however many full stops end them."""
    words, others = (each.strip().rstrip(".").split() for each in (right, text))
    return words == others


def has_same_verdict(prompt: Prompt, right: str, near: str) -> bool:
    """Digits as reasons, whatever they are, and the same verdict."""
    reasons, _, verdict = near.partition(">")
    return reasons.isascii() and reasons.isdecimal() and verdict == right.partition(">")[2]


EQUAL: dict[str, Equality] = {
    **dict.fromkeys(("clicks", "scenes_pointing"), is_point_inside),
    **dict.fromkeys(("scenes_grounding", "small_grounding", "solids_grounding", "jigsaw_box"), is_box_near),
    **dict.fromkeys(("scenes_detection", "small_detection"), are_boxes_near),
    "small_clicks": is_middle_inside,
    **dict.fromkeys(("calls", "call_trajectories"), is_same_json),
    "clips_count": are_same_numbers,
    "drawings": is_same_picture,
    "drawings_svg": is_same_svg,
    "evaluations": has_same_verdict,
    "graphs": is_same_last_value,
    "ledgers": is_same_sentence,
    "programs": is_right_program,
    "records": is_same_side,
    "sql": is_same_query,
    "wiki": is_same_squad_answer,
}
"""By option of `NEAR`, which of its accepted answers are right."""
