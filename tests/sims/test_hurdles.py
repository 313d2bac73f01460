"""The runner over hurdles: jumps by hand, and what no jump passes."""

import gymnasium
import numpy as np
import pytest

import sims.hurdles  # noqa: F401 registers the environment

FULL, RUN = np.array([1.0, 1.0]), np.array([1.0, -1.0])


def begin(height, spacing=8.0):
    env = gymnasium.make("Hurdles-v0").unwrapped
    env.reset(seed=0, options={"level": {"height_m": height, "spacing_m": spacing}})
    env.x = env.furthest = env.origin = env.begin = 0.0
    return env


def play(env, choose, steps=150):
    total = 0.0
    for _ in range(steps):
        _, reward, done, _, info = env.step(choose(env))
        total += reward
        if done:
            break
    return total, info["scores"]["success"]


def test_a_jump_is_a_parabola():
    env = begin(1.0)
    env.speed = 5.0
    env.step(FULL)
    # y = 6 t - 5 t^2: .55 at .1 s, 1.0 at .2 s; x = 5 t
    assert (env.x, env.y, env.climb) == pytest.approx((0.5, 0.55, 5.0))
    env.step(RUN)
    assert (env.x, env.y, env.climb) == pytest.approx((1.0, 1.0, 4.0))
    heights = []
    while env.y > 0:
        heights.append(env.y)
        env.step(RUN)
    assert max(heights) == pytest.approx(1.8) and env.x == pytest.approx(6.0)  # down again after 1.2 s


def test_the_height_is_that_at_the_hurdle():
    # from x0 at 5 m/s the hurdle at 4 m is met after (4 - x0) / 5 s: y = 6 t - 5 t^2
    for x0, passes in ((1.0, True), (3.4, False), (3.65, False)):  # t = .6: 1.8; .12: .648; .07: .3955
        env = begin(0.7)
        env.x, env.speed = x0, 5.0
        while env.passed == 0 and (env.speed > 0 or env.x > 0):
            env.step(FULL)
        assert (env.passed == 1) == passes
        if not passes:
            assert (env.x, env.y, env.speed) == (0.0, 0.0, 0.0)
    env = begin(0.64)
    env.x, env.speed = 3.4, 5.0
    while env.passed == 0 and env.speed > 0:
        env.step(FULL)
    assert env.passed == 1


def test_low_hurdles_are_run_through_and_progress_is_rewarded_once():
    total, success = play(begin(0.0), lambda env: RUN)
    assert success == 1 and total == pytest.approx(10.0)
    # without a jump the runner comes back to the first hurdle of 40 m again and again: 4 / 40 of 10
    total, success = play(begin(0.5), lambda env: RUN)
    assert success == 0 and 0.8 < total <= 1.0


def jumper(env):
    """Jump with full force where the top of the jump is over the hurdle."""
    ahead = env._hurdle(env.passed) - env.x
    return FULL if ahead <= 0.65 * env.speed else RUN


def test_high_hurdles_are_passed_up_to_the_top_of_a_jump():
    assert play(begin(1.5), jumper)[1] == 1
    for height in (1.81, 4.0):
        total, success = play(begin(height), jumper)
        assert success == 0 and total <= 1.0


def test_a_seed_repeats_and_the_observation_is_in_its_space():
    env = gymnasium.make("Hurdles-v0")
    first = [env.reset(seed=4)[0], *(env.step(env.action_space.sample())[0] for _ in range(150))]
    assert all(env.observation_space.contains(each) for each in first)
    assert (env.reset(seed=4)[0] == first[0]).all()
