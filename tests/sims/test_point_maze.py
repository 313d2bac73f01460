"""The point in a maze: moves around the wall by hand, goals beyond it, time, seeds, and a log outside of the zones."""

import numpy as np
import pytest

from mmrl.core.types import Task
from mmrl.data.offline.played_log import PlayedLog
from sims.point.maze import ZONE_M, ZONES, PointMaze, draw_episode, in_wall, in_zone
from sims.task import SimTask

SIM = PointMaze(steps=3, speed=0.2)


def place(env, point, goal):
    env.reset(seed=[0] * env.num_envs)
    env._places[:] = [point, goal]


def test_the_wall_stops_one_coordinate_and_lets_the_other_slide():
    """From (0.1, -0.3) a push of (0.2, 0.2): x becomes 0.3, beyond the wall's end at 0.2, so y becomes -0.1.

    From (-0.2, -0.3) it ends in the wall in y, so only x changes; from (-0.9, 0.95) walls of the room stop both.
    """
    at = np.array([[0.1, -0.3], [-0.2, -0.3], [-0.9, 0.95]])
    moved = SIM.move(at, np.array([[1.0, 1.0], [1.0, 1.0], [-3.0, 1.0]]))
    assert moved == pytest.approx(np.array([[0.3, -0.1], [0.0, -0.3], [-1.0, 1.0]]))


def test_rewards_scores_and_ends_by_hand():
    """From (0.8, 0) up by 0.2 the reward is 0.2; the goal at (0.8, 0.35) is 0.15 m away, then reached from 0.05 m."""
    env = SIM.make(1)
    place(env, [0.8, 0.0], [0.8, 0.35])
    seen, reward, ended, cut, info = env.step(np.array([[0.0, 9.0]]))
    assert seen["state"][0] == pytest.approx([0.8, 0.2]) and seen["goal"][0] == pytest.approx([0.8, 0.35])
    assert seen["state"].dtype == np.float32 and reward[0] == pytest.approx(0.2) and not ended[0] and not cut[0]
    assert info["scores"]["distance_m"][0] == pytest.approx(0.15) and info["scores"]["success"][0] == 0
    _, reward, ended, cut, info = env.step(np.array([[0.0, 1.0]]))
    assert ended[0] and not cut[0] and info["scores"]["success"][0] == 1 and info["scores"]["height_m"][0] == 0.4
    still = env.step(np.array([[1.0, 1.0]]))
    assert still[1][0] == 0 and still[0]["state"][0] == pytest.approx([0.8, 0.4])


def test_without_goals_time_ends_an_episode():
    env = PointMaze(goals=False, steps=2).make(1)
    assert set(env.reset(seed=[1])[0]) == {"state"}
    place(env, [0.8, 0.0], [0.8, 0.0])
    first, last = env.step(np.zeros((1, 2))), env.step(np.zeros((1, 2)))
    assert not first[2][0] and not first[3][0] and last[3][0] and last[4]["scores"]["success"][0] == 0


def test_a_goal_is_beyond_the_wall_in_a_zone_and_a_seed_has_one_episode():
    for seed in range(100):
        start, goal = draw_episode(np.random.default_rng(seed))
        assert not in_wall(start[None])[0] and not in_zone(start[None])[0] and np.sign(start[1]) != np.sign(goal[1])
        # from wherever the goal is reached, the point is in the zone: 0.1 + 0.1 < 0.25
        assert np.linalg.norm(ZONES - goal, axis=1).min() + PointMaze().radius_m < ZONE_M
    env = SIM.make(3)
    seen, _ = env.reset(seed=[5, 6, 5])
    assert (seen["state"][0] == seen["state"][2]).all() and (seen["goal"][0] != seen["goal"][1]).any()


def test_the_log_passes_the_wall_and_never_enters_a_zone():
    task: Task = SimTask(PointMaze())
    episodes = PlayedLog(num_episodes=40).play(task, 0).episodes
    states = np.concatenate([episode.observations["state"] for episode in episodes])
    assert len(states) == 40 * 50 and not in_zone(states.astype(np.float64)).any() and not in_wall(states).any()
    sides = [np.sign(episode.observations["state"][[0, -1], 1]) for episode in episodes]
    assert 0 < sum(first != last for first, last in sides) < 40  # some go around the wall, most of them by chance
    moved = np.concatenate([np.diff(episode.observations["state"], axis=0) for episode in episodes])
    assert (np.linalg.norm(moved, axis=1) > 0.02).mean() > 0.95


@pytest.mark.parametrize("options", [{"steps": 0}, {"speed": 0.5}, {"radius_m": 0.0}])
def test_numbers_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=f"sim.{next(iter(options))}"):
        PointMaze(**options)
