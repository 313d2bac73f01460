"""PushT under a Python of its own: states by seed, the copy of its physics, expert, scores, images."""

import subprocess

import numpy as np
import pytest

pytest.importorskip("msgpack")
from sims.pusht.sim import PushTSim
from sims.workers.python import find_python

try:
    PYTHON = find_python(None, PushTSim.environment, PushTSim.make_target)
except ValueError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

COPY = """
import numpy as np
from sims.pusht.guest import make_package_env
from sims.pusht.physics import PhysicsCopy, read_state

env, copy = make_package_env(), PhysicsCopy(make_package_env())
for seed in range(3):
    env.reset(seed=seed)
    copy.set_state(read_state(env))
    before = read_state(env)
    for _ in range(25):
        way = np.array(env.block.local_to_world((20, 45)) - env.agent.position)  # beside the centre: the block turns
        target = np.array(env.agent.position) + 25 * way / np.linalg.norm(way)
        env.step(target)
        copy.step(tuple(target))
    there, here = read_state(env), read_state(copy)
    assert np.abs(np.subtract(there.block, before.block)).max() > 5, "nothing was pushed"
    for name in there._fields:
        assert np.allclose(getattr(there, name), getattr(here, name), atol=0.01), (seed, name, there, here)
env.block.angle, env.block.position = 0.8, (258, 255)
copy.set_state(read_state(env))
assert abs(copy.measure_coverage() - 0.9512020003) < 1e-6, copy.measure_coverage()
"""


def test_the_copy_of_the_physics_steps_and_measures_as_the_package_does():
    subprocess.run([PYTHON, "-W", "ignore", "-c", COPY], check=True)


def test_initial_states_are_those_of_the_package_and_scaled():
    """State 3: pusher (374, 84), block (195.6848, 230.2480), 1.892963 rad, which the package's own reset gives."""
    env = PushTSim().make(2)
    seen, infos = env.reset(seed=[3, 4])
    env.close()
    expected = [374 / 256 - 1, 84 / 256 - 1, 195.6848 / 256 - 1, 230.2480 / 256 - 1, np.sin(1.892963), np.cos(1.892963)]
    assert np.allclose(seen["proprio"][0], expected, atol=1e-5) and np.abs(seen["proprio"]).max() <= 1
    assert not np.allclose(seen["proprio"][0], seen["proprio"][1])
    assert list(infos["task"]) == ["pusht", "pusht"] and seen["instruction"][0] == "push the block onto the goal"


def test_the_pusher_goes_to_the_action():
    env = PushTSim(chunk=20).make(1)
    env.reset(seed=[3])
    target = np.array([0.9, -0.9], np.float32)
    seen, reward, terminated, truncated, infos = env.step(np.broadcast_to(target, (1, 20, 2)))
    env.close()
    assert np.allclose(seen["proprio"][0, :2], target, atol=1e-3)
    assert not (reward[0] or terminated[0] or truncated[0]) and infos["executed"][0] == 20


def test_coverage_is_a_score():
    """A pusher that stays where it is in state 36, which covers 0.5451 of the goal by the package's own measure."""
    env = PushTSim().make(1)
    seen, _ = env.reset(seed=[36])
    _, _, _, _, infos = env.step(seen["proprio"][:, None, :2])
    env.close()
    assert infos["scores"]["coverage"][0] == pytest.approx(0.5451, abs=1e-4) and infos["scores"]["success"][0] == 0


def test_the_expert_goes_on_from_where_others_have_pushed_the_block():
    sim = PushTSim()
    env, rng = sim.make(1), np.random.default_rng(0)
    env.reset(seed=[0])
    over, steps = False, 0
    while not over:
        action = sim.expert(env)
        if steps % 10 == 9 and steps < 60:
            action = rng.uniform(-1, 1, action.shape)
        _, _, terminated, truncated, infos = env.step(action)
        over, steps = bool(terminated[0] | truncated[0]), steps + 1
    env.close()
    assert infos["scores"]["success"][0] == 1 and infos["scores"]["coverage"][0] > 0.95


def test_the_image_shows_goal_and_block():
    env = PushTSim(image_size=64).make(1)
    image = env.reset(seed=[3])[0]["image"][0].astype(int)
    env.close()
    assert image.shape == (64, 64, 3) and (image[2:5, 2:5] > 250).mean() > 0.5  # white floor
    green = (image[..., 1] > image[..., 0] + 60) & (image[..., 1] > image[..., 2] + 60)
    blue = image[..., 2] > image[..., 0] + 100
    assert green.sum() > 20 and blue.sum() > 5
    assert np.allclose(np.argwhere(blue).mean(axis=0)[::-1], [374 / 8, 84 / 8], atol=1)  # the pusher, x and y
