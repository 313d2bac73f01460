import pytest

from mmrl.rewards.boxes import (
    area,
    average_precision,
    contains,
    count_factor,
    edge_closeness,
    giou,
    grounding_reward,
    iou,
    mean_average_precision,
    parse_box,
    parse_numbers,
)


def around(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


@pytest.mark.parametrize(
    ("box", "other", "expected"),
    [
        ((0, 0, 10, 10), (5, 0, 15, 10), 1 / 3),
        ((0, 0, 2, 2), (1, 1, 3, 3), 1 / 7),
        ((0, 0, 2, 2), (2, 0, 4, 2), 0.0),
        ((0, 0, 2, 2), (5, 5, 6, 6), 0.0),
        ((1, 2, 3, 7), (1, 2, 3, 7), 1.0),
        ((10, 10, 50, 30), (20, 10, 60, 40), 600 / 1400),
    ],
)
def test_iou(box, other, expected):
    assert iou(box, other) == iou(other, box) == pytest.approx(expected, abs=1e-12)


def test_giou_of_overlapping_and_of_disjoint_boxes():
    assert giou(around(0.5, 0.5, 0.4, 0.4), around(0.6, 0.5, 0.4, 0.4)) == pytest.approx(0.6)
    # union 0.08, smallest box around both 0.64: 0 - 0.56 / 0.64
    assert giou(around(0.2, 0.2, 0.2, 0.2), around(0.8, 0.8, 0.2, 0.2)) == pytest.approx(-0.875)
    assert giou((0, 0, 3, 4), (0, 0, 3, 4)) == 1


def test_rewards_of_gui_g1():
    box, truth = (10, 10, 50, 30), (20, 10, 60, 40)
    assert edge_closeness(box, truth, 100, 100) == pytest.approx(0.923077, abs=1e-6)  # 4 / (3 / 0.9 + 1)
    assert grounding_reward(box, truth, 100, 100) == pytest.approx(1.222527, abs=1e-6)
    assert grounding_reward(truth, truth, 100, 100) == 1.375
    assert edge_closeness((0, 0, 1, 1), (100, 0, 101, 1), 100, 100) == 0


def test_a_point_on_the_left_edge_is_inside_and_on_the_right_edge_outside():
    box = (2, 3, 5, 6)
    assert contains(box, (2, 3)) and contains(box, (4.9, 5.9))
    assert not contains(box, (5, 4)) and not contains(box, (3, 6)) and not contains(box, (1.9, 4))


def test_boxes_with_edges_out_of_order_are_refused():
    for box in ((5, 0, 5, 2), (3, 0, 2, 2), (0, 2, 1, 1)):
        with pytest.raises(ValueError, match="x1 < x2"):
            area(box)


def test_average_precision_by_hand():
    truth = [(0, 0, 10, 10), (20, 0, 30, 10)]
    far = (50, 50, 60, 60)
    assert average_precision(truth, truth) == 1
    assert average_precision(truth[:1], truth) == 0.5
    # hit, false alarm, hit: recall 1/2 at precision 1, recall 1 at precision 2/3
    assert average_precision([truth[0], far, truth[1]], truth) == pytest.approx(0.5 + 0.5 * 2 / 3)
    # the first box is wrong: at recall 1/2 the best precision from there on is 2/3
    assert average_precision([far, *truth], truth) == pytest.approx(2 / 3)
    # a true box is taken once
    assert average_precision([truth[0], truth[0]], truth) == 0.5
    assert average_precision([], []) == 1
    assert average_precision([], truth) == average_precision([far], []) == 0


def test_mean_average_precision_counts_the_thresholds_that_are_reached():
    # IoU 8/12 = 0.667 reaches 0.5, 0.55, 0.6, 0.65
    assert mean_average_precision([(0, 0, 10, 10)], [(2, 0, 12, 10)]) == pytest.approx(0.4)


def test_more_boxes_than_true_ones_are_paid_less():
    assert 0.6 * count_factor(5, 2) == pytest.approx(0.24)
    assert 0.6 * count_factor(1, 2) == 0.6
    assert count_factor(0, 0) == 1 and count_factor(3, 0) == 0
    truth = [(0, 0, 10, 10), (20, 0, 30, 10)]
    padded = [*truth, *((40, 40, 50 + n, 50) for n in range(8))]
    assert mean_average_precision(padded, truth) == 1  # the hack: further boxes at the end cost nothing
    assert count_factor(len(padded), len(truth)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "text",
    ["", "1 2 3", "1 2 3 4 5", "1 2 3 4 1 2 3 4", "3 0 2 9", "1 2 1 4", "0 0 65 9", "-1 0 3 9", "1.0 2 3 4", "1  2 3 4",
     "(1 2 3 4)", "１ 2 3 4", "1 2 3 " + "9" * 20_000, "1,2,3,4"],
)  # fmt: skip
def test_only_one_box_inside_the_image_is_read(text):
    assert parse_box(text, 64) is None
    assert parse_box("1 2 3 4", 64) == (1, 2, 3, 4)
    assert parse_numbers("0 64", 2, 64) == [0, 64]
