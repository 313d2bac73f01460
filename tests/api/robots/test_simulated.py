"""A simulated arm in which time passes, and its expert as the human."""

import numpy as np
import pytest

from mmrl.api.robots.clock import SimulatedClock
from mmrl.api.robots.inference import SimulatedInference
from mmrl.api.robots.player import RealTimePlayer
from mmrl.api.robots.simulated import SimulatedRobot
from mmrl.api.robots.takeover import ScriptedTakeover
from mmrl.core.errors import ConfigError
from mmrl.rollouts.env.takeover import TakeoverRule
from sims.point.sim import PointSim
from sims.tabletop.sims import Push, Reach


def build(sim=None, fps=None):
    clock = SimulatedClock()
    return SimulatedRobot(Reach(level="easy", observe=()) if sim is None else sim, clock, fps), clock


def test_a_command_is_one_control_step_of_the_simulator():
    """The same two actions in the simulator itself give the same observations bit for bit."""
    robot, clock = build()
    env = Reach(level="easy", observe=()).stepwise().make(1)
    expected, _ = env.reset(seed=[4])
    robot.begin(4)
    for number in range(3):
        assert np.array_equal(robot.read()["proprio"], expected["proprio"][0])
        action = np.array([0.5, -0.5, number], np.float32)
        clock.sleep_until(number / robot.fps)
        robot.write(action)
        expected = env.step(action[None, None])[0]
    assert robot.missed == 0 and robot.fps == 20 and robot.action_dims == 3


def test_control_steps_without_a_command_are_played_as_holding():
    """Commands at 0 and 170 ms: the second is due at 50, and two whole steps of 50 ms (100, 150) pass before it."""
    robot, clock = build()
    env = Reach(level="easy", observe=()).stepwise().make(1)
    env.reset(seed=[4])
    robot.begin(4)
    action = np.array([1, 0, 0], np.float32)
    robot.write(action)
    clock.sleep_until(0.17)
    robot.write(-action)
    for each in (action, 0 * action, 0 * action, -action):
        expected = env.step(each[None, None])[0]
    assert robot.missed == 2 and np.array_equal(robot.read()["proprio"], expected["proprio"][0])


def test_a_gripper_keeps_its_opening_while_the_arm_holds():
    from sims.tabletop.sims import PickPlace

    robot, _ = build(PickPlace(level="easy", observe=()))
    robot.begin(0)
    robot.write(np.array([0.5, 0.5, 0.5, -0.25], np.float32))
    assert robot.hold().tolist() == [0, 0, 0, -0.25]


def test_the_expert_takes_over_where_the_policy_stands_still():
    """A policy that never moves succeeds by its human alone, whose steps are marked."""
    robot, clock = build()
    takeover = ScriptedTakeover(robot, TakeoverRule(patience=3, duration=15))
    inference = SimulatedInference(lambda query: np.zeros((8, 3)), clock, 0.1)
    played = RealTimePlayer(robot, inference, clock, takeover=takeover).play(seed=4)
    flags = played.episode.interventions
    assert played.episode.success and played.episode.terminated and flags.any() and not flags[:3].any()
    assert (played.episode.actions[~flags] == 0).all() and (played.episode.actions[flags] != 0).any(axis=1).all()
    assert played.episode.rewards.sum() == 1 and played.timing.late == 0


def test_a_second_episode_begins_with_a_patient_human():
    robot, clock = build(Push(level="easy", observe=()))
    takeover = ScriptedTakeover(robot, TakeoverRule(patience=3, duration=100))
    player = RealTimePlayer(
        robot, SimulatedInference(lambda query: np.zeros((8, 3)), clock), clock, takeover=takeover, max_steps=5
    )
    first, second = player.play(seed=4), player.play(seed=4)
    assert first.episode.interventions.tolist() == second.episode.interventions.tolist()
    assert first.episode.interventions.any()


def test_simulators_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"sim 'point' does not say .*; give fps="):
        build(PointSim())
    robot, _ = build(PointSim(), fps=10)
    with pytest.raises(ConfigError, match="sim 'point' has no scripted expert"):
        ScriptedTakeover(robot, TakeoverRule())
