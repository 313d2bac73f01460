"""Synthesised tasks: masks under projected centres, distances by scipy, rejections, and the rules of the events."""

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import lil_matrix
from scipy.sparse.csgraph import dijkstra

from sims.goal_views.drawing import draw_view
from sims.goal_views.environment import GoalViewEnv
from sims.goal_views.expert import BREAK, FORWARD, LEFT, RIGHT, USE, plan_actions, step_ahead
from sims.goal_views.layout import RoomLayout
from sims.goal_views.projection import Viewpoint, project_point
from sims.goal_views.sim import GoalViewSim
from sims.goal_views.tasks import EVENTS, EYE_M, FOVY, PITCH, GoalTask, TaskGenerator, find_centre
from sims.task import seed_of

SMALL = {"side": 6, "walls": 4, "objects": 3, "distances": {"easy": 2, "hard": 5}}
ROOM = RoomLayout(4, ((1, 1),), (120.0,), (("red", (3, 3)), ("blue", (0, 2))))
"""Red in the far right corner, blue at the left wall, a wall in the middle."""


def steps_to(layout: RoomLayout, target, start) -> float:
    """Steps from the start into the target's cell, minus the one into it, by scipy's shortest paths."""
    side = layout.side
    graph = lil_matrix((side * side, side * side))
    for x in range(side):
        for z in range(side):
            for other in ((x + 1, z), (x - 1, z), (x, z + 1), (x, z - 1)):
                if layout.is_free((x, z)) and (layout.is_free(other) or other == target):
                    graph[x * side + z, other[0] * side + other[1]] = 1
    return dijkstra(graph.tocsr(), indices=start[0] * side + start[1])[target[0] * side + target[1]] - 1


def test_tasks_have_their_distance_and_a_mask_under_the_projected_centre():
    generator = TaskGenerator(**SMALL)
    kinds = Counter()
    for seed in range(120):
        task = generator.synthesise(seed)
        kinds[task.difficulty, task.event] += 1
        assert (task.difficulty, task.event) == generator.kind_of(seed)
        target = task.layout.cells[task.target]
        assert steps_to(task.layout, target, task.start) == SMALL["distances"][task.difficulty]
        # the mask is the whole target as the camera sees it, and its centre is not hidden
        pixel = project_point(find_centre(task.layout, task.target), task.camera, 20, 20, FOVY)
        image, segments = draw_view(task.layout.boxes(), task.camera, 20, FOVY)
        assert task.centre == pixel and task.goal_mask[int(pixel[1]), int(pixel[0])]
        assert (task.goal_mask == (segments == task.target)).all() and (task.goal_view == image).all()
        apart = np.array(task.camera.eye)[[0, 2]] - (target[0] + 0.5, target[1] + 0.5)
        assert 1.5 - 1e-9 <= np.hypot(*apart) <= 4 + 1e-9
        assert task.layout.is_free((int(task.camera.eye[0]), int(task.camera.eye[2])))
    assert set(kinds) == {(name, event) for name in SMALL["distances"] for event in EVENTS}
    assert min(kinds.values()) >= 8  # 20 on average


def test_a_task_is_a_function_of_its_seed_and_layouts_of_the_splits_differ():
    generator = TaskGenerator(**SMALL)
    one, again = generator.synthesise(7), generator.synthesise(7)
    assert one.layout.objects == again.layout.objects and (one.goal_view == again.goal_view).all()
    layouts = {
        split: {(task.layout.walls, task.layout.objects) for task in map(generator.synthesise, seeds)}
        for split in ("train", "held_out")
        for seeds in [[seed_of(split, draw << 4) for draw in range(100)]]
    }
    assert len(layouts["train"]) == len(layouts["held_out"]) == 100
    assert not layouts["train"] & layouts["held_out"]


def test_a_camera_that_does_not_see_the_centre_is_rejected():
    """In a closed room all cameras see the only object; behind a ring of walls none does."""
    generator = TaskGenerator(side=5, walls=0, objects=1, distances={"near": 1}, goal_distances=(1.5, 2.0))
    free = RoomLayout(5, (), (), (("red", (2, 2)),))
    assert generator._photograph(np.random.default_rng(0), free, 0) is not None
    ring = tuple((x, z) for x in (1, 2, 3) for z in (1, 2, 3) if (x, z) != (2, 2))
    hidden = RoomLayout(5, ring, (100.0,) * 8, free.objects)
    assert generator._photograph(np.random.default_rng(0), hidden, 0) is None


def place(event: str, target: int = 0, cell=(2, 2), heading: int = 0) -> GoalViewEnv:
    """An environment in `ROOM`, with the agent in a cell."""
    env = GoalViewEnv(**SMALL)
    env.reset(seed=0)
    view = Viewpoint((2.5, EYE_M, 0.5), 0.0, PITCH)
    image, segments = draw_view(ROOM.boxes(), view, 20, FOVY)
    env.task = GoalTask(ROOM, target, event, "easy", cell, heading, view, (0.0, 0.0), image, segments == target)
    env.boxes, env.cell, env.heading, env.views = ROOM.boxes(), cell, heading, {}
    return env


def outcome(env, *actions) -> tuple[float, bool, float]:
    """Reward, end and wrong event of the last of some actions, the others of which must not end the episode."""
    for action in actions[:-1]:
        _, reward, ended, truncated, _ = env.step(action)
        assert (reward, ended, truncated) == (0.0, False, False)
    _, reward, ended, _, info = env.step(actions[-1])
    assert info["scores"]["success"] == reward
    return reward, ended, info["scores"]["wrong"]


def test_events_by_hand():
    """From (2, 2) looking along z: forward to (2, 3), then right looks along x at red in (3, 3)."""
    assert outcome(place("approach"), FORWARD, RIGHT) == (1.0, True, 0.0)
    assert outcome(place("break"), FORWARD, RIGHT, BREAK) == (1.0, True, 0.0)
    assert outcome(place("use"), FORWARD, RIGHT, USE) == (1.0, True, 0.0)
    # the wrong event, and the right event at another object: blue in (0, 2) is two steps to the left
    assert outcome(place("use"), FORWARD, RIGHT, BREAK) == (0.0, True, 1.0)
    assert outcome(place("approach"), LEFT, FORWARD, USE) == (0.0, True, 1.0)
    assert outcome(place("break"), LEFT, FORWARD, BREAK) == (0.0, True, 1.0)
    assert outcome(place("break", target=1), LEFT, FORWARD, BREAK) == (1.0, True, 0.0)
    # nothing happens to a floor, and walls are in the way
    assert outcome(place("break"), BREAK, USE, FORWARD, FORWARD, FORWARD) == (0.0, False, 0.0)
    blocked = place("approach", cell=(2, 1), heading=3)
    assert outcome(blocked, FORWARD, BREAK) == (0.0, False, 0.0) and blocked.cell == (2, 1)


def test_the_target_is_where_its_pixels_are():
    """Red is ahead and to the right of (2, 2); from (3, 0) it is straight ahead, and behind after half a turn."""
    env = place("approach")
    visible, (column, _) = env.locate_target()
    assert visible and column > 0.5
    ahead = place("approach", cell=(3, 0))
    assert ahead.locate_target()[0] and ahead.locate_target()[1][0] == pytest.approx(0.5)
    ahead.step(RIGHT), ahead.step(RIGHT)
    assert ahead.locate_target() == (False, (0.0, 0.0))


def test_the_expert_takes_the_fewest_actions():
    """Breadth-first over the environment's own steps needs as many."""
    for seed in range(20):
        env = GoalViewEnv(**SMALL)
        env.reset(seed=seed)
        task = env.task
        plan = plan_actions(task.layout, task.target, task.event, task.start, task.heading)
        border, depth, reached = {(task.start, task.heading)}, 0, False
        while not reached:
            following = set()
            for cell, heading in border:
                for action in range(5):
                    env.cell, env.heading = cell, heading
                    _, reward, ended, *_ = env.step(action)
                    reached |= reward == 1
                    following |= set() if ended else {(env.cell, env.heading)}
            border, depth = following, depth + 1
        assert len(plan) == depth


def test_demonstrations_succeed_and_are_labelled():
    sim = GoalViewSim(kwargs=SMALL)
    env = GoalViewEnv(**SMALL)
    for seed, demonstration in zip(range(12), sim.demonstrate(range(12))):
        env.reset(seed=seed)
        visible = []
        for raw, action in demonstration:
            assert raw["image"].shape == (20, 20, 7) and raw["state"].tolist()[EVENTS.index(env.task.event)] == 1
            pixels = draw_view(env.boxes, env._viewpoint(), 20, FOVY)[1] == env.task.target
            rows, columns = np.nonzero(pixels)
            assert raw["target_visible"] == pixels.any()
            if pixels.any():
                assert raw["target_centroid"] == pytest.approx([(columns.mean() + 0.5) / 20, (rows.mean() + 0.5) / 20])
            visible.append(bool(pixels.any()))
            _, reward, *_ = env.step(action)
        assert reward == 1
        # the last action of break and use is made before the target
        assert visible[-1] or env.task.event == "approach"
        assert step_ahead(env.cell, env.heading) == env.task.layout.cells[env.task.target]
    assert {sim.task_of(seed) for seed in range(60)} == {
        f"{name}_{event}" for name in ("easy", "hard") for event in EVENTS
    }


def test_the_expert_of_a_vector_environment_succeeds():
    """Also where environments that have ended wait for the others, whatever their event."""
    sim = GoalViewSim(kwargs=SMALL)
    assert {sim.generator.kind_of(seed)[1] for seed in range(8)} == set(EVENTS)
    env = sim.make(8)
    env.reset(seed=list(range(8)))
    ended, success = np.zeros(8, bool), np.zeros(8)
    while not ended.all():
        _, _, terminated, truncated, infos = env.step(sim.expert(env))
        ended |= terminated | truncated
        success = np.maximum(success, infos["scores"]["success"])
    assert success.tolist() == [1] * 8
    env.close()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"side": 1}, "side must be at least 2"),
        ({"objects": 7}, "objects must be at most 6"),
        ({"side": 3, "walls": 7, "objects": 2}, "lower sim.kwargs.walls or raise sim.kwargs.side"),
        ({"distances": {"here": 0}}, "distances must name walking distances of at least 1"),
        ({"distances": {}}, "distances must name walking distances"),
        ({"goal_distances": (3.0, 2.0)}, "goal_distances must be the smallest and the largest"),
    ],
)
def test_options_that_no_room_has(options, message):
    with pytest.raises(ValueError, match=message):
        TaskGenerator(**options)


def test_a_distance_that_no_layout_has_is_refused():
    with pytest.raises(ValueError, match=r"lower sim\.kwargs\.distances"):
        TaskGenerator(side=3, walls=0, objects=1, distances={"far": 20}).synthesise(0)
