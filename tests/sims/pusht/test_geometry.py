"""PushT's block without its physics: outline, paths around it, poses and places of strokes."""

import numpy as np

from sims.pusht.outline import CENTRE, PERIMETER, RADIUS, locate, measure_clearance
from sims.pusht.paths import RING, cost_arrivals, cost_paths, find_path, walk
from sims.pusht.poses import measure_error, move, to_global, to_local, to_pose
from sims.pusht.strokes import GAP, locate_strokes


def sample_places(count, seed=0):
    """Places at least 5 px farther from the block than the pusher's radius."""
    places = np.random.default_rng(seed).uniform(-150, 150, (8 * count, 2)) + CENTRE
    return places[measure_clearance(places) > RADIUS + 5][:count]


def test_clearance_is_the_distance_to_the_t():
    points = np.array([[0, -10], [63, -4], [0, 75], [0, 15], [40, 40], [20, 125]], float)
    assert np.allclose(measure_clearance(points), [10, 5, -15, -15, 10, np.hypot(5, 5)])


def test_the_outline_has_clearance_zero_and_normals_point_outward():
    point, normal = locate(np.linspace(0, PERIMETER, 97)[:-1] + 2.5)
    assert PERIMETER == 480 and np.allclose(measure_clearance(point), 0)
    assert np.allclose(np.linalg.norm(normal, axis=1), 1) and np.allclose(measure_clearance(point + normal), 1)


def test_paths_keep_clear_of_the_block():
    assert (measure_clearance(RING) > RADIUS + 4).all()
    starts, ends = sample_places(60, seed=1), sample_places(60, seed=2)
    bends = 0
    for start, end in zip(starts, ends):
        path = find_path(start, end)
        assert np.array_equal(path[0], start) and np.array_equal(path[-1], end)
        assert measure_clearance(walk(path, 1.0)).min() > RADIUS + 2
        bends += len(path) > 2
    assert 10 < bends < 60


def test_costs_of_paths_are_their_lengths():
    start, ends = sample_places(1, seed=3)[0], sample_places(40, seed=4)
    lengths = [np.linalg.norm(np.diff(find_path(start, end), axis=0), axis=1).sum() for end in ends]
    assert np.allclose(cost_paths(start, ends, cost_arrivals(ends)), lengths)


def test_a_walk_ends_at_the_last_corner_in_equal_steps():
    places = walk(np.array([[0, 0], [30, 0], [30, 40]], float), 15.0)
    assert np.allclose(places, [[14, 0], [28, 0], [30, 12], [30, 26], [30, 40]])


def test_local_places_turn_back_and_moves_compose():
    pose = to_pose((200.0, 120.0, np.pi / 2))
    assert np.allclose(pose, [155, 120, np.pi / 2])  # 45 px along the block's own y
    assert np.allclose(to_global(np.zeros(2), pose), [200, 120])
    assert np.allclose(to_local(to_global(np.array([[3.0, 4.0]]), pose), pose), [[3, 4]])
    assert np.allclose(move(pose, np.array([[10.0, 0.0, 0.5]])), [[155, 130, np.pi / 2 + 0.5]])


def test_errors_count_angles_the_short_way():
    poses = np.array([[3.0, 4.0, 2 * np.pi], [0.0, 0.0, 1.9 * np.pi]])
    assert np.allclose(measure_error(poses, np.zeros(3)), [5, 45 * 0.1 * np.pi])


def test_a_stroke_starts_before_its_contact_and_ends_behind():
    starts, ends = locate_strokes(np.array([[60.0, 0.0, 20.0], [60.0, np.pi / 6, 20.0]]))
    assert np.allclose(starts[0], [0, -RADIUS - GAP]) and np.allclose(ends[0], [0, 20 - RADIUS])
    direction = (ends[1] - starts[1]) / (20 + GAP)
    assert np.allclose(direction, [-np.sin(np.pi / 6), np.cos(np.pi / 6)])
