"""Clips: golden frames and scores, disjoint splits, and answers that only look right."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tasks.clips import Clips
from tasks.clips.corruptions import CORRUPTIONS, SYMMETRIES
from tasks.clips.scene import SHAPES, Mover, Paste, paste_shapes, render_frame
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
    rng = np.random.default_rng(0)
    names = ("grey", "invert", "swap", "rotate", "mirror")
    changed = {name: CORRUPTIONS[name](frame[None], rng)[0, 0].tolist() for name in names}
    assert changed == {
        "grey": [[60, 60, 60], [0, 0, 0]],
        "invert": [[225, 195, 165], [255, 255, 255]],
        "swap": [[90, 60, 30], [0, 0, 0]],
        "rotate": [[0, 0, 0], [30, 60, 90]],
        "mirror": [[0, 0, 0], [30, 60, 90]],
    }


def corrupt(name, frames, seed=0):
    return CORRUPTIONS[name](frames, np.random.default_rng(seed))


def test_corruptions_of_several_frames():
    frames = np.random.default_rng(1).integers(0, 256, (4, 24, 24, 3)).astype(np.uint8)
    assert {corrupt(name, frames).shape for name in CORRUPTIONS} == {frames.shape}
    assert {corrupt(name, frames).dtype for name in CORRUPTIONS} == {np.dtype(np.uint8)}
    turned = [corrupt("turn", frames, seed) for seed in range(8)]
    sides = [np.rot90(frames, k, axes=(1, 2)) for k in (1, 3)]
    assert {[np.array_equal(each, side) for side in sides].index(True) for each in turned} == {0, 1}
    np.testing.assert_array_equal(corrupt("freeze", frames), np.stack([frames[0]] * 4))
    orders = set()
    for seed in range(40):
        shuffled = corrupt("shuffle", frames, seed)
        order = tuple(next(i for i in range(4) if np.array_equal(frame, frames[i])) for frame in shuffled)
        assert sorted(order) == [0, 1, 2, 3] and order[0] != 0 and order[3] != 3
        orders.add(order)
    assert len(orders) == 14  # 24 less 6 and 6 that keep an end, and 2 that keep both were taken twice
    out = corrupt("zoom_out", frames)  # 24 / 1.2 is 20 pixels, 24 / 1.4 is 17
    border = (out == 0).all(axis=(0, 3))
    assert border[:2].all() and border[:, :2].all() and not border[4:20, 4:20].any()


def test_noise_zoom_blur_and_saturation_by_their_numbers():
    flat = np.full((2, 64, 64, 3), 128, np.uint8)
    spreads = [float((corrupt("noise", flat, seed) - 128.0).std()) for seed in range(6)]
    assert all(30 < spread < 70 for spread in spreads) and max(spreads) > 1.1 * min(spreads)  # cut at 0 and 255
    ring = flat.copy()
    ring[:, 8:56, 8:56] = 200
    inner = (corrupt("zoom_in", ring)[0, :, :, 0] > 164).mean()  # (48 / 64)^2 becomes up to 1.3^2 to 1.5^2 as much
    assert 0.94 < inner <= 1
    assert (corrupt("blur", flat) == flat).all()
    edge = np.zeros((1, 16, 16, 3), np.uint8)
    edge[:, :, 8:] = 255
    assert 0 < corrupt("blur", edge)[0, 8, 7, 0] < 255
    colour = np.full((1, 4, 4, 3), (100, 60, 60), np.uint8)
    # away from its grey, .299 * 100 + .587 * 60 + .114 * 60 = 72, twice as far
    assert corrupt("saturate", colour)[0, 0, 0].tolist() == [128, 48, 48]


def test_pasted_shapes_are_counted():
    task = Clips(kinds=["paste"], frames=8, size=48)
    seen = set()
    for index in range(40):
        prompt, clip = task[index], task.problem(index)
        counts = tuple(sum(paste.shape == shape for paste in clip.pastes) for shape in SHAPES)
        assert prompt.answer == counts and task.demonstrate(index) == ",".join(map(str, counts))
        assert task.score(reply(prompt, task.demonstrate(index))) == {"exact": 1, "counts": 1, "format": 1}
        seen.add(counts)
        for shape in SHAPES:
            times = sorted(paste.time for paste in clip.pastes if paste.shape == shape)
            assert all(b - a >= 2 for a, b in itertools.pairwise(times))
        black = sum(int((frame == 0).all(2).sum()) for frame in prompt.images)
        area = sum({"circle": np.pi, "square": 4, "triangle": 2}[p.shape] * p.radius**2 * 48**2 for p in clip.pastes)
        assert black == pytest.approx(area, rel=0.2)
    assert len(seen) > 15 and max(max(counts) for counts in seen) == 3
    frame = paste_shapes(np.full((16, 16, 3), 9, np.uint8), (Paste("square", 2, (0.5, 0.5), 0.25),), 2)
    assert (frame == 0).sum() == 8 * 8 * 3 and frame[4, 4, 0] == 0 and frame[3, 4, 0] == 9


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
    task = Clips(kinds=["grounding", "count", "paste", "order", "anomaly"], frames=6)
    kinds = set()
    for index in range(60):
        prompt = task[index]
        kinds.add(prompt.info["kind"])
        assert len(prompt.images) == 6
        assert set(task.score(reply(prompt, task.demonstrate(index))).values()) == {1.0}
    assert kinds == {"grounding", "count", "paste", "order", "anomaly"}


def test_the_answer_restores_the_film():
    task = Clips(kinds=["order"], frames=5, movers=(1, 1), speed=0.1)
    for index in range(20):
        prompt, clip = task[index], task.problem(index)
        for shown, place in zip(prompt.images, prompt.answer):
            np.testing.assert_array_equal(shown, render_frame(clip.movers, place - 1, 32))


def test_only_the_frames_of_the_answer_are_altered():
    every = [name for name in CORRUPTIONS if name not in ("freeze", "shuffle")]
    task = Clips(kinds=["grounding", "anomaly"], frames=6, corruptions=every)
    for index in range(60):
        prompt, clip = task[index], task.problem(index)
        altered = [
            time + 1
            for time, frame in enumerate(prompt.images)
            if not np.array_equal(frame, render_frame(clip.movers, time, 32))
        ]
        first, last = prompt.answer[0], prompt.answer[-1]
        assert altered == list(range(first, last + 1))


@pytest.mark.parametrize("corruption", ["freeze", "shuffle"])
def test_the_answer_holds_the_ends_of_frames_out_of_time(corruption):
    task = Clips(frames=6, corruptions=(corruption,))
    for index in range(20):
        prompt, clip = task[index], task.problem(index)
        first, last = prompt.answer
        whole = [render_frame(clip.movers, time, 32) for time in range(6)]
        same = [np.array_equal(*pair) for pair in zip(prompt.images, whole)]
        changed = [number for number, equal in enumerate(same, start=1) if not equal]
        assert last > first and changed[-1] == last and changed[0] == first + (corruption == "freeze")
        assert task.score(reply(prompt, task.demonstrate(index)))["exact"] == 1
    assert corruption not in SYMMETRIES


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
