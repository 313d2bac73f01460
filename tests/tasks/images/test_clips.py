"""Clips: golden frames and scores, disjoint splits, and answers that only look right."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.clips import Clips
from tasks.clips.scene import CORRUPTIONS, Mover, render_frame
from tasks.clips.verify import (
    count_score,
    find_complement,
    interval_iou,
    order_score,
    verify_counts,
    verify_frame,
    verify_interval,
    verify_order,
)
from tests.tasks.replies import reply


def test_shapes_move_and_are_reflected():
    square = Mover(False, 0, 0.125, (0.5, 0.5), (0.25, 0.0))
    lefts = []
    for time in range(5):
        inside = (render_frame((square,), time, 16) == (220, 40, 40)).all(2)
        assert inside.sum() == 16  # 4 by 4 pixels
        lefts.append(int(inside.any(0).argmax()))
    assert lefts == [6, 10, 10, 6, 2]  # to the border at 12 and back: 6, 10, 14 -> 10, 6, 2


def test_corruptions_of_one_pixel():
    frame = np.array([[[30, 60, 90], [0, 0, 0]]], np.uint8)
    changed = {name: change(frame)[0].tolist() for name, change in CORRUPTIONS.items()}
    assert changed == {
        "grey": [[60, 60, 60], [0, 0, 0]],
        "invert": [[225, 195, 165], [255, 255, 255]],
        "swap": [[90, 60, 30], [0, 0, 0]],
        "rotate": [[0, 0, 0], [30, 60, 90]],
        "mirror": [[0, 0, 0], [30, 60, 90]],
    }


def test_interval_iou_of_the_papers():
    assert interval_iou((2, 6), (4, 8)) == pytest.approx(1 / 3)
    assert interval_iou((10, 20), (12, 24)) == pytest.approx(0.571429, abs=1e-6)
    assert interval_iou((0, 2), (3, 5)) == 0 and interval_iou((5, 2), (2, 5)) == 0


@pytest.mark.parametrize(
    ("counts", "answer", "score"),
    [([3, 1, 4], [3, 2, 4], 5 / 6), ([3, 1], [3, 2, 4], 0), ([1, 0, 0], [0, 0, 0], 2 / 3)],
)
def test_count_score_of_the_paper(counts, answer, score):
    assert count_score(counts, answer) == pytest.approx(score)


@pytest.mark.parametrize(
    ("order", "answer", "score"),
    [
        ("341562", "341562", 1),
        ("341526", "341562", 0.888889),
        ("265143", "341562", 0),
        ("654321", "123456", 0),
        ("11", "12", 0),
    ],
)
def test_order_score_of_the_paper(order, answer, score):
    digits = [[int(digit) for digit in text] for text in (order, answer)]
    assert order_score(*digits) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "exact", "overlap", "well_formed"),
    [
        ("2-3", 1, 1, 1),
        ("dark\n2-3", 1, 1, 1),
        ("2-2", 0, 0.5, 1),
        ("1-8", 0, 0.25, 1),  # the whole clip
        ("3-2", 0, 0, 0),
        ("2-99", 0, 0, 0),
        ("0-3", 0, 0, 0),
        ("2-3 5-6", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_verify_interval(text, exact, overlap, well_formed):
    assert verify_interval(text, (2, 3), 8) == {"exact": exact, "iou": overlap, "format": well_formed}


def test_verify_counts_frames_and_orders():
    assert verify_counts("2,1", (2, 1)) == {"exact": 1, "counts": 1, "format": 1}
    assert verify_counts("2,2", (2, 1)) == {"exact": 0, "counts": 0.5, "format": 1}
    assert verify_counts("2", (2, 1)) == verify_counts("2, 1", (2, 1)) == {"exact": 0, "counts": 0, "format": 0}
    assert verify_frame("3", 3, 4) == {"exact": 1, "format": 1}
    assert [verify_frame(text, 3, 4)["format"] for text in ("2", "5", "0", "3 4", "03")] == [1, 0, 0, 0, 0]
    assert verify_order("3 1 2 4", (3, 1, 2, 4)) == {"exact": 1, "order": 1, "format": 1}
    assert verify_order("2 4 3 1", (3, 1, 2, 4))["exact"] == 1  # backwards
    assert verify_order("3 1 4 2", (3, 1, 2, 4)) == {"exact": 0, "order": 0.75, "format": 1}
    assert verify_order("1 1 1 1", (3, 1, 2, 4)) == {"exact": 0, "order": 0, "format": 0}


def test_all_kinds_are_asked_and_the_expert_is_exact():
    task = Clips(kinds=["grounding", "count", "order", "anomaly"], frames=6)
    kinds = set()
    for index in range(60):
        prompt = task[index]
        kinds.add(prompt.info["kind"])
        assert len(prompt.images) == 6
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}
    assert kinds == {"grounding", "count", "order", "anomaly"}


def test_the_answer_restores_the_film():
    task = Clips(kinds=["order"], frames=5, movers=(1, 1), speed=0.1)
    for index in range(20):
        prompt, clip = task[index], task.problem(index)
        for shown, place in zip(prompt.images, prompt.answer):
            np.testing.assert_array_equal(shown, render_frame(clip.movers, place - 1, 32))


def test_only_the_frames_of_the_answer_are_altered():
    task = Clips(kinds=["grounding", "anomaly"], frames=6)
    for index in range(30):
        prompt, clip = task[index], task.problem(index)
        altered = [
            time + 1
            for time, frame in enumerate(prompt.images)
            if not np.array_equal(frame, render_frame(clip.movers, time, 32))
        ]
        first, last = prompt.answer[0], prompt.answer[-1]
        assert altered == list(range(first, last + 1))


def test_no_motion_is_in_both_splits():
    motions = [{Clips().on(s).problem(i).movers for i in range(100)} for s in ("train", "held_out")]
    assert not motions[0] & motions[1]


@pytest.mark.parametrize(
    "options", [{"kinds": ["?"]}, {"frames": 1}, {"movers": (0, 1)}, {"speed": 0}, {"corruptions": []}, {"size": 4}]
)
def test_arguments_without_problems_are_refused(options):
    with pytest.raises(ValueError, match="clips"):
        Clips(**options)


@pytest.mark.parametrize("corruption", ["rotate", "mirror", "grey"])
def test_frames_of_a_symmetry_at_an_end_can_be_told_from_neither_side(corruption):
    """A mirrored film is a film: with the first frames mirrored it is the film with the last frames mirrored."""
    task = Clips(corruptions=(corruption,), frames=4)
    symmetric, seen = corruption != "grey", set()
    for index in range(40):
        problem, prompt = task.problem(index), task[index]
        first, last = problem.answer
        assert task.verify(task.demonstrate(index), prompt)["exact"] == 1
        rest = find_complement(problem.answer, 4)
        seen.add(rest)
        assert (rest is not None) == (first == 1 or last == 4)
        if rest is None:
            continue
        assert task.verify(f"{rest[0]}-{rest[1]}", prompt)["exact"] == symmetric
        if symmetric:
            other = replace(problem, movers=tuple(reflect(m, corruption) for m in problem.movers), answer=rest)
            np.testing.assert_array_equal(task._render(other), prompt.images)
    assert {None, (1, 2), (4, 4)} <= seen


def reflect(mover, corruption):
    (x, y), (vx, vy) = mover.place, mover.velocity
    turned = corruption == "rotate"
    return replace(mover, place=(1 - x, 1 - y if turned else y), velocity=(-vx, -vy if turned else vy))
