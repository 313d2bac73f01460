"""One human demonstration: its frames, the reward by the paper's numbers, resets, the clock, estimated poses."""

import json
import math

import numpy as np
import pytest

from sims.tabletop.scene import CONTROL_HZ
from sims.tracking import DemonstrationFile, DemonstrationTracking, ScriptedHuman
from sims.tracking.retargeting import TOLERANCE_M, solve_posture
from sims.tracking.reward import CORNERS, compute_keypoint_error, compute_tracking_reward

SEEDS = [0, 2, 4, 6]
STILL = {"object_m": 0.0, "yaw": 0.0, "joint_noise": 0.0}


def test_rewards_by_hand():
    """exp(-.1), exp(-1), a tenth of exp(-2.5) beyond 0.2 m; exp(-2.5) where that limit is 0.3 m; 0 without the hand."""
    error, near = np.array([0.01, 0.1, 0.25]), np.full(3, 0.1)
    assert compute_tracking_reward(error, near) == pytest.approx([0.904837, 0.367879, 0.00820850], rel=1e-5)
    assert compute_tracking_reward(error, near, far_m=0.3)[2] == pytest.approx(0.0820850, rel=1e-5)
    assert compute_tracking_reward(error, np.full(3, 0.31)).tolist() == [0, 0, 0]


def test_the_keypoint_error_is_that_of_a_loop_over_corners():
    rng = np.random.default_rng(0)
    angle, target_yaw = rng.uniform(-3, 3, 5), rng.uniform(-3, 3, 5)
    centre, target = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))

    def turn(yaw):
        return np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])

    turns = np.stack([turn(a) for a in angle])
    expected = [
        np.mean([np.linalg.norm(c + turn(a) @ k - g - turn(b) @ k) for k in CORNERS])
        for c, a, g, b in zip(centre, angle, target, target_yaw)
    ]
    assert compute_keypoint_error(centre, turns, target, target_yaw) == pytest.approx(expected)


def test_a_scripted_human_moves_the_cube_at_its_speed_and_stays_behind_it():
    frames = ScriptedHuman(bend_m=0.0, speed_m_s=0.2, hold_s=0.25, error_m=0.0).read()
    steps = np.linalg.norm(np.diff(frames.object_m, axis=0), axis=1) * CONTROL_HZ
    moving = steps > 0
    assert steps[moving] == pytest.approx(np.full(moving.sum(), 0.2), rel=0.05)
    assert not moving[-5:].any() and frames.yaw == pytest.approx(np.zeros(len(frames.yaw)), abs=1e-9)
    # centre, half a cube, half a finger, and the gap of the first frame
    assert np.linalg.norm(frames.pre_contact_m[:2]) == pytest.approx(0.03 + 0.014 + 0.03)
    assert np.linalg.norm((frames.hand_m - frames.object_m)[moving.argmax() + 1 :, :2], axis=1) == pytest.approx(0.044)


def test_a_file_of_another_frame_rate_is_the_same_demonstration(tmp_path):
    frames = ScriptedHuman(error_m=0.0).read()
    times = np.arange(0, (len(frames.yaw) - 1) * 4 + 1) / 4  # four frames a control step
    at = np.arange(len(frames.yaw))
    columns = [*frames.object_m.T, frames.yaw, *frames.hand_m.T]
    table = np.column_stack([np.interp(times, at, column) for column in columns])
    # turns that are written between -pi and pi
    content = {"hz": 4 * CONTROL_HZ, "object": table[:, :4].tolist(), "hand": table[:, 4:].tolist()}
    for row in content["object"]:
        row[3] = (row[3] + 3.1 + math.pi) % (2 * math.pi) - math.pi
    (tmp_path / "one.json").write_text(json.dumps(content))
    again = DemonstrationFile(str(tmp_path / "one.json")).read()
    assert again.object_m == pytest.approx(frames.object_m) and again.hand_m == pytest.approx(frames.hand_m)
    assert again.yaw - again.yaw[0] == pytest.approx(frames.yaw - frames.yaw[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hand": None}, "cannot be read .*hand.*; write"),
        ({"hand": [[0, 0, 0]]}, r"a row a frame, .* got shapes \[2, 4\] and \[1, 3\]"),
        ({"hz": 0}, "hz must be a number of frames a second above 0, got 0"),
        ({"object": [[0, 0, 0, 0], [0, 0, float("nan"), 0]]}, "object, frame 1: numbers must be finite"),
        ({"object": [[0, 0, 0], [0, 0, 0]]}, r"of 4 and 3 numbers; got shapes \[2, 3\]"),
    ],
)
def test_a_broken_file_is_refused_before_anything_is_built(change, message, tmp_path):
    content = {"hz": 30, "object": [[0.0, 0, 0, 0]] * 2, "hand": [[0.0, 0, 0]] * 2, **change}
    content = {name: value for name, value in content.items() if value is not None}
    (tmp_path / "one.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        DemonstrationTracking(DemonstrationFile(str(tmp_path / "one.json")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset": "home"}, "sim.reset must be one of pre_contact, random, got 'home'"),
        ({"held_out_reset": "home"}, "sim.held_out_reset must be"),
        ({"noise_m": -1.0}, "sim.noise_m must be at least 0"),
        ({"injected": 1.5}, "injected"),
        ({"steps": 0}, "sim.steps must be at least 1"),
        ({"lost_m": 0.05}, "sim.lost_m must be at least 0.12"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DemonstrationTracking(**options)


def test_a_posture_has_its_fingertips_at_the_goal():
    sim = DemonstrationTracking(**STILL)
    env = sim.make(len(SEEDS))
    env.reset(seed=SEEDS)
    assert np.abs(env.physics.tip - sim.frames.hand_m[0]).max() < TOLERANCE_M
    assert np.abs(env.physics.objects[:, 0] - sim.frames.object_m[0]).max() < 1e-9
    with pytest.raises(ValueError, match="the arm does not reach"):
        solve_posture(np.array([1.5, 0.0, 0.1]))


def test_the_hand_turns_and_moves_with_the_cube():
    sim = DemonstrationTracking(object_m=0.03, yaw=0.5, joint_noise=0.0)
    env = sim.make(len(SEEDS))
    env.reset(seed=SEEDS)
    for tip, cube, turn in zip(env.physics.tip, env.physics.objects[:, 0], env.physics.turns[:, 0]):
        assert np.linalg.norm(turn.T @ (tip - cube) - sim.frames.pre_contact_m) < TOLERANCE_M
    assert np.abs(env.physics.objects[:, 0] - sim.frames.object_m[0])[:, :2].max() > 0.005


def test_random_starts_are_near_the_cube_and_held_out_ones_may_differ():
    sim = DemonstrationTracking(reset="random", held_out_reset="pre_contact", **STILL)
    env = sim.make(40)
    env.reset(seed=list(range(40)))  # even seeds are training states
    distance = np.linalg.norm(env.physics.tip - env.physics.objects[:, 0], axis=1)
    assert np.abs(env.physics.tip - sim.frames.hand_m[0])[1::2].max() < TOLERANCE_M
    assert distance[::2].max() < sim.lost_m and np.ptp(distance[::2]) > 0.1


def test_the_clock_stands_while_the_cube_is_far():
    """The hand never moves, so the demonstrated cube leaves the real one; at 5 cm its clock stops."""
    sim = DemonstrationTracking(far_m=0.05, steps=60, **STILL)
    env = sim.make(1)
    env.reset(seed=[0])
    errors = np.linalg.norm(sim.frames.object_m - sim.frames.object_m[0], axis=1)
    rewards = []
    for _ in range(40):
        _, reward, *_ = env.step(np.zeros((1, 3), np.float32))
        rewards.append(float(reward[0]))
    last = int(env.clock[0])
    assert errors[last - 1] <= 0.06 and errors[last] > 0.04 and last < 30
    assert rewards[0] > 0.9 and rewards[-1] == pytest.approx(0.1 * math.exp(-10 * 0.055), rel=0.1)
    assert env.next_frame()[0] == last


def test_scores_are_those_of_the_physics():
    sim = DemonstrationTracking(**STILL)
    env = sim.make(2)
    env.reset(seed=[0, 2])
    errors = []
    while env.unwrapped.live.any():
        _, _, terminated, truncated, infos = env.step(sim.expert(env)[:, 0])
        centre, turn = env.physics.objects[:, 0], env.physics.turns[:, 0]
        frame = env.clock
        errors.append(compute_keypoint_error(centre, turn, sim.frames.object_m[frame], sim.frames.yaw[frame]))
    assert len(errors) == sim.steps and truncated.all() and not terminated.any()
    assert infos["scores"]["tracking_error_m"] == pytest.approx(np.mean(errors, axis=0))
    end = compute_keypoint_error(centre, turn, sim.frames.object_m[[-1, -1]], sim.frames.yaw[[-1, -1]])
    assert infos["scores"]["success"].tolist() == (end <= sim.success_m).tolist()
    assert (end < 0.06).all()  # a replay from the undisturbed start brings the cube near


def test_a_hand_that_leaves_the_cube_ends_the_episode_without_reward():
    sim = DemonstrationTracking(**STILL)
    env = sim.make(1)
    env.reset(seed=[0])
    while env.unwrapped.live.any():
        _, reward, terminated, _, infos = env.step(np.array([[0.0, 1.0, 1.0]], np.float32))
    assert terminated[0] and infos["scores"]["lost"][0] == 1 and reward[0] == 0 and infos["scores"]["success"][0] == 0


def test_estimated_poses_have_the_stated_errors_and_the_critic_has_none():
    noise = {"noise_m": 0.01, "noise_rad": 0.1, "episode_noise_m": 0.02, "episode_noise_rad": 0.2}
    sim = DemonstrationTracking(**STILL, **noise)
    env, errors = sim.make(300), []
    exact = DemonstrationTracking(**STILL).make(1)
    true, _ = exact.reset(seed=[0])
    observation, _ = env.reset(seed=[2 * i for i in range(300)])
    for _ in range(3):
        assert np.abs(observation["privileged_state"] - true["privileged_state"]).max() < 1e-4
        errors.append((observation["state"] - observation["privileged_state"])[:, 6:9] * 0.1)
        action = np.zeros((1, 3), np.float32)
        true, observation = exact.step(action)[0], env.step(action.repeat(300, 0))[0]
    errors = np.array(errors)  # [3, 300, 3] metres
    constant = errors.mean(0)
    # a third of the steps' variance stays in the mean; 900 draws of a standard deviation are right to 3 %
    assert constant.std() == pytest.approx(math.sqrt(0.02**2 + 0.01**2 / 3), rel=0.1)
    assert (errors - constant).std() == pytest.approx(0.01 * math.sqrt(2 / 3), rel=0.1)
    wrong = DemonstrationTracking(**STILL, injected=0.25).make(400)
    observation, _ = wrong.reset(seed=[2 * i for i in range(400)])
    moved = np.abs(observation["state"] - observation["privileged_state"]).max(1) > 1e-6
    assert moved.mean() == pytest.approx(0.25, abs=0.06)


def test_a_state_that_is_loaded_goes_on_in_the_same_way():
    sim = DemonstrationTracking(noise_m=0.01, injected=0.1)
    env, other = sim.make(3), sim.make(3)
    env.reset(seed=[0, 2, 4])
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (8, 3, 3)).astype(np.float32)
    for action in actions[:4]:
        env.step(action)
    other.load_state_dict(env.state_dict())
    for action in actions[4:]:
        first, second = env.step(action), other.step(action)
        assert np.array_equal(first[0]["state"], second[0]["state"]) and np.array_equal(first[1], second[1])
    env.reset(seed=[8, 2, 4], options={"reset_mask": np.array([True, False, False])})
    assert env.count.tolist() == [0, 8, 8]
