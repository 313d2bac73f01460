"""The rules of every task on states made by hand; no simulator runs here."""

from dataclasses import replace

import numpy as np
import pytest

from sims.tabletop.suite import PARTS
from sims.tabletop.task import TabletopState

TIP = np.array([0.4, 0.0, 0.2])


def state(task, objects, named, *, travel=None, tip=TIP, gap=0.004, memory=None, origin=None):
    """One environment."""
    objects = np.asarray(objects, float)[None]
    count = objects.shape[1]
    return TabletopState(
        tip=np.asarray(tip, float)[None],
        gap=np.array([gap]),
        objects=objects,
        turns=np.tile(np.eye(3), (1, count, 1, 1)),
        travel=np.zeros((1, count)) if travel is None else np.asarray(travel, float)[None],
        origin=objects.copy() if origin is None else np.asarray(origin, float)[None],
        named=np.array([named]),
        memory=np.zeros((1, task.memory)) if memory is None else np.asarray(memory, float)[None],
    )


def events(task, result):
    return {name for name, happened in task.judge(result).items() if happened[0]}


def test_reach():
    task = PARTS["reach"]().task  # balls of 5 cm, 6 cm above the centres
    cubes = [[0.4, 0.0, 0.03], [0.5, 0.2, 0.03], [0.6, -0.2, 0.03]]
    assert events(task, state(task, cubes, (0,), tip=[0.4, 0.0, 0.139])) == {"success"}
    assert events(task, state(task, cubes, (0,), tip=[0.4, 0.0, 0.141])) == set()
    assert events(task, state(task, cubes, (1,), tip=[0.4, 0.0, 0.139])) == {"wrong_object"}
    far = task.measure(state(task, cubes, (0,), tip=[0.4, 0.3, 0.09 + 0.4]))
    assert far["tip_distance_m"][0] == pytest.approx(0.5)  # 3-4-5


PUSHED = [[0.40, 0.0, 0.03], [0.50, 0.2, 0.03], [0.40, 0.12, 0.001], [0.55, -0.2, 0.001]]


def test_push():
    task = PARTS["push"]().task  # two cubes, two discs, 4.5 cm
    assert events(task, state(task, PUSHED, (0, 2))) == set()
    near = [[0.40, 0.076, 0.03], *PUSHED[1:]]
    assert events(task, state(task, near, (0, 2), origin=PUSHED)) == {"success"}
    assert events(task, state(task, near, (0, 3), origin=PUSHED)) == {"wrong_place"}
    moved = [PUSHED[0], [0.50, 0.245, 0.03], *PUSHED[2:]]
    assert events(task, state(task, moved, (0, 2), origin=PUSHED)) == {"wrong_object"}
    assert events(task, state(task, moved, (1, 3), origin=PUSHED)) == set()  # the named one may move
    fallen = [[0.95, 0.0, -0.3], *PUSHED[1:]]
    assert events(task, state(task, fallen, (0, 2), origin=PUSHED)) == {"dropped"}


def test_dense_terms_have_their_units():
    task = PARTS["push"]().task
    half = [[0.40, 0.06, 0.03], *PUSHED[1:]]  # 6 of 12 cm
    terms = task.measure(state(task, half, (0, 2), origin=PUSHED, tip=[0.40, 0.06, 0.13]))
    assert terms["goal_distance_m"][0] == pytest.approx(0.06)
    assert terms["tip_distance_m"][0] == pytest.approx(0.10)
    assert terms["progress"][0] == pytest.approx(0.5)
    drawer = PARTS["drawer"]().task
    terms = drawer.measure(state(drawer, [[0.45, y, 0.055] for y in (-0.15, 0, 0.15)], (1,), travel=[0.05, 0.02, 0]))
    assert terms["progress"][0] == pytest.approx(0.02 / 0.08)


def test_dense_weights_pay_the_change():
    """Weight -2 per metre on the cube's distance: what all decisions pay is 2 x (first - last), besides the success."""
    from sims.tabletop import Push, expert

    sim = Push(image_size=4, threads=1, dense_reward_weights={"goal_distance_m": -2.0})
    env = sim.make(4)
    env.reset(seed=[1, 2, 3, 4])
    first, total = env.scores["goal_distance_m"].copy(), np.zeros(4)
    while env.live.any():
        total += env.step(expert(env))[1]
    change = 2 * (first - env.scores["goal_distance_m"])
    np.testing.assert_allclose(total, env.scores["success"] + change, atol=1e-12)
    assert (change > 0.05).all()


def placed(name, gap, height, steps):
    task = PARTS[name]().task
    things = len(task.things)
    objects = np.column_stack([np.linspace(0.36, 0.6, things), np.linspace(-0.2, 0.2, things), np.zeros(things)])
    objects[:, 2] = [thing.rest_m for thing in task.things]
    named = (0, things - 1)
    origin = objects.copy()
    objects[0] = objects[named[1]] + [0, 0, height]
    result = state(task, objects, named, gap=gap, origin=origin)
    for _ in range(steps):
        result = replace(result, memory=task.remember(result))
    return task, result


@pytest.mark.parametrize(("name", "height"), [("pick_place", 0.012 + 0.025), ("stack", 0.05)])
def test_placing(name, height):
    """In place, let go, for three control steps; the plate's top is 1.2 cm over its centre, cubes are 5 cm."""
    assert events(*placed(name, 0.07, height, 3)) == {"success"}
    assert events(*placed(name, 0.07, height, 2)) == set()
    assert events(*placed(name, 0.05, height, 9)) == set()  # still held
    assert events(*placed(name, 0.07, height + 0.02, 9)) == set()  # in the air
    task, result = placed(name, 0.07, height, 3)
    apart = replace(
        result, objects=result.objects + np.array([0.06, 0, 0]) * (np.arange(result.objects.shape[1]) == 0)[:, None]
    )
    assert task.remember(apart)[0, 0] == 0  # counting starts anew
    other = result.objects.copy()
    other[0, 1, 1] += 0.05
    assert "wrong_object" in events(task, replace(result, objects=other))


def test_pick_place_on_another_plate():
    task, result = placed("pick_place", 0.07, 0.037, 1)
    wrong = replace(result, named=np.array([(0, result.named[0, 1] - 1)]))
    assert events(task, wrong) == {"wrong_place"}
    assert events(task, replace(wrong, gap=np.array([0.05]))) == set()  # passing over is allowed


def test_drawer():
    task = PARTS["drawer"]().task
    handles = [[0.45, y, 0.055] for y in (-0.15, 0, 0.15)]
    assert events(task, state(task, handles, (1,), travel=[0, 0.079, 0.029])) == set()
    assert events(task, state(task, handles, (1,), travel=[0, 0.081, 0])) == {"success"}
    assert events(task, state(task, handles, (1,), travel=[0.031, 0.01, 0])) == {"wrong_object"}


def press(order, pressed):
    """Buttons go down one after the other, each up again before the next."""
    task = PARTS["buttons"]().task
    places = [[0.4, y, 0.032] for y in (-0.2, 0, 0.2)]
    result = state(task, places, order)
    for button in pressed:
        for depth in (0.004, 0.012, 0.013, 0.0):
            travel = np.zeros((1, 3))
            travel[0, button] = depth
            result = replace(result, travel=travel)
            result = replace(result, memory=task.remember(result))
    return events(task, result), task.measure(result)["progress"][0]


def test_buttons():
    assert press((2, 0), []) == (set(), 0.0)
    assert press((2, 0), [2]) == (set(), 0.5)
    assert press((2, 0), [2, 0]) == ({"success"}, 1.0)
    assert press((2, 0), [0])[0] == {"wrong_object"}  # the right button too early
    assert press((2, 0), [2, 1])[0] == {"wrong_object"}
    assert press((2, 0), [2, 2])[0] == {"wrong_object"}  # twice
