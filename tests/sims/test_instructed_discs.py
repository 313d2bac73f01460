"""Two discs with an instruction: the sparse reward and the script by hand, captions, and what is saved."""

import numpy as np
import pytest

from sims.point.captions import NEUTRAL, DiscCaptions
from sims.point.instructed_discs import SENTENCES, InstructedDiscs


def test_the_reward_is_one_on_the_disc_that_the_instruction_names():
    """From the origin with speed 0.5 m: the red disc at (1, 0) is reached by the second push to the right, after 1 m,
    within its radius of 0.2 m, and left by the third, upwards; the blue disc is at (-0.5, 0)."""
    env = InstructedDiscs(steps=3, speed=0.5).make(2)
    observation, _ = env.reset(seed=[0, 1])
    env._goal[:], env._places[:] = [0, 1], [[0, 0], [1, 0], [-0.5, 0]]
    pushes = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    steps = [env.step(np.stack([push, -push])[:, None]) for push in pushes]
    rewards = np.array([step[1] for step in steps])
    # the second environment goes the other way: on the blue disc at once, at -1 m next, which is 0.5 m beyond it
    np.testing.assert_array_equal(rewards, [[0, 1], [1, 0], [0, 0]])
    assert steps[-1][4]["scores"]["success"].tolist() == [0, 0] and steps[-1][4]["scores"]["reached"].tolist() == [1, 1]
    assert [step[3].tolist() for step in steps] == [[False] * 2, [False] * 2, [True] * 2]
    assert steps[0][0]["instruction"] == SENTENCES and steps[0][0]["state"][:, 6:].tolist() == [[1, 0], [0, 1]]
    assert observation["proprio"].shape == (2, 2) and env.observation_space["image"].shape == (2, 24, 24, 3)


def test_the_script_ends_on_the_named_disc_at_full_speed():
    sim = InstructedDiscs()
    seeds = [2 * i for i in range(20)]
    colours = {sim.task_of(seed) for seed in seeds}
    assert colours == {"red", "blue"}
    for seed, episode in zip(seeds, sim.demonstrate(seeds)):
        last, action = episode[-1]
        goal = last["state"][2:4] if sim.task_of(seed) == "red" else last["state"][4:6]
        assert np.linalg.norm(last["state"][:2] - goal) <= 0.1 + 1e-6 and not action.any()
        assert sim.task_of(seed) in last["instruction"] and action.shape == (1, 2)
        # 0.1 m along the longer axis in a decision; the last move stops at the goal
        path = np.stack([raw["state"][:2] for raw, _ in episode])
        moves = np.abs(np.diff(path, axis=0)).max(1)
        assert moves[:-1] == pytest.approx(0.1, abs=1e-6) and (moves <= 0.1 + 1e-6).all()


def test_a_saved_environment_goes_on_alike():
    one, other = InstructedDiscs().make(3), InstructedDiscs().make(3)
    one.reset(seed=[0, 1, 2])
    one.step(np.ones((3, 2)))
    other.reset(seed=[5, 6, 7])
    other.load_state_dict(one.state_dict())
    for left, right in zip(one.step(np.zeros((3, 2)))[0].values(), other.step(np.zeros((3, 2)))[0].values()):
        np.testing.assert_array_equal(left, right)


def test_captions_say_how_far_the_point_is():
    """In radii of 0.2 m: 1 is on the disc, 2 beside it, 4 near it."""
    captions = DiscCaptions()
    words = [captions.describe(distance, 1).split()[4] for distance in (0.0, 0.2, 0.21, 0.4, 0.5, 0.8, 0.9)]
    assert words == ["on", "on", "beside", "beside", "near", "near", "far"]
    assert captions.goal_of(SENTENCES[0]) == "the white point is on the red disc"
    with pytest.raises(ValueError, match="no goal is known for the instruction 'sleep'"):
        captions.goal_of("sleep")


def test_drawn_scenes_are_of_every_kind():
    images, sentences = DiscCaptions().draw(np.random.default_rng(0), 400)
    assert images.shape == (400, 24, 24, 3) and images.dtype == np.uint8
    assert len(set(sentences)) == 9 and 20 < sentences.count(NEUTRAL) < 60  # 4 distances of 2 discs, and 10 %
    on_red = [i for i, text in enumerate(sentences) if text == "the white point is on the red disc"]
    # white is (250, 250, 250) and red (210, 40, 40): on the red disc a white pixel has red beside it
    white = (images[on_red] > 220).all(-1)
    red = (images[on_red][..., 0] > 150) & (images[on_red][..., 1] < 80)
    beside = np.zeros_like(white)
    for axis, move in ((1, 1), (1, -1), (2, 1), (2, -1)):
        for far in (1, 2):
            beside |= np.roll(red, move * far, axis)
    assert (white & beside).any((1, 2)).mean() > 0.9
