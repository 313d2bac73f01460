"""Block mazes: moves and paths by hand, held-out levels, and which of two students plays."""

import gymnasium
import numpy as np
import pytest

import sims.mazes  # noqa: F401 registers the environment
from sims.levels.sim import GymLevelSim
from sims.levels.students import StudentLevelSim
from sims.mazes.maze import CELLS, neighbours, path_length, read_level, write_level
from sims.mazes.task import MazeTask

# 5 x 5 cells, row by row; a wall through the second column leaves one gap, in the last row:
#   A # . . .
#   . # . . .
#   . # . . .
#   . # . . G
#   . . . . .
WALL = write_level([1, 6, 11, 16, 16, 16, 16], goal=19, agent=0)
UP, RIGHT, DOWN, LEFT = range(4)


def begin(level=WALL):
    env = gymnasium.make("BlockMaze-v0").unwrapped
    observation, _ = env.reset(seed=0, options={"level": level})
    return env, observation.reshape(2, 9, 9)


def test_a_level_is_what_is_seen_from_the_agent():
    """The agent, in the corner of the maze, is in the middle of the view: the maze is its lower right quarter."""
    env, (blocked, goal) = begin()
    expected = np.ones((9, 9))
    expected[4:, 4:] = 0
    expected[4:8, 5] = 1
    np.testing.assert_array_equal(blocked, expected)
    assert np.argwhere(goal).tolist() == [[7, 8]]
    # one step down: all is one row higher
    moved = env.step(DOWN)[0].reshape(2, 9, 9)
    np.testing.assert_array_equal(moved[0, 3:8], expected[4:])
    assert np.argwhere(moved[1]).tolist() == [[6, 8]] and moved[0, 8].all()


def test_a_walk_by_hand():
    """Four moves down, four to the right and one up: the reward is 1 - 0.9 * 9 / 20 = 0.595."""
    env, _ = begin()
    for action in (RIGHT, UP, LEFT):  # a block and two borders
        env.step(action)
        assert env.agent == 0
    env, _ = begin()
    rewards, ends = [], []
    for action in [DOWN] * 4 + [RIGHT] * 4 + [UP]:
        _, reward, ended, truncated, info = env.step(action)
        rewards.append(reward)
        ends.append(ended)
    assert rewards == [0.0] * 8 + [pytest.approx(0.595)] and ends == [False] * 8 + [True] and not truncated
    assert info["scores"] == {"success": 1.0} and path_length(*read_level(WALL)) == 9


def test_levels_that_say_things_twice():
    """Blocks give way to agent and goal, and a goal on the agent goes to the next cell; cells are rounded."""
    blocks, goal, agent = read_level(write_level([3, 3, 4, 5, 6, 7, 24], goal=24, agent=24))
    assert (goal, agent) == (0, 24) and blocks == {3, 4, 5, 6, 7}
    assert read_level(dict(WALL, goal=18.6, agent=-0.5))[1:] == (19, 0)


def test_shortest_paths_are_those_of_matrices():
    """The smallest power of the adjacency matrix that has an entry for the pair of cells."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        blocks, goal, agent = read_level(write_level(rng.integers(CELLS, size=7), *rng.integers(CELLS, size=2)))
        free = np.array([cell not in blocks for cell in range(CELLS)])
        steps = np.zeros((CELLS, CELLS), bool)
        for cell in range(CELLS):
            row, column = divmod(cell, 5)
            for other in range(CELLS):
                steps[cell, other] = abs(other // 5 - row) + abs(other % 5 - column) == 1 and free[cell] and free[other]
        reached, expected = np.eye(CELLS, dtype=bool), None
        for length in range(CELLS):
            if reached[agent, goal]:
                expected = length
                break
            reached = reached | reached @ steps
        assert path_length(blocks, goal, agent) == expected
        assert sorted({*neighbours(12)}) == [7, 11, 13, 17]


def test_held_out_levels_are_long_and_the_first_students():
    task = MazeTask(StudentLevelSim("BlockMaze-v0"), mazes=40, least_path=6)
    held_out = task.on("held_out")
    assert len(held_out) == 40
    for prompt in (held_out[i] for i in range(40)):
        assert path_length(*read_level(prompt.info["level"])) >= 6
        assert prompt.info["seed"] & 1 == 1 and prompt.info["seed"] >> 1 & 1 == 0
    assert held_out[3].info == MazeTask(task.sim, mazes=50, least_path=6).on("held_out")[3].info
    assert all(task[i].info["seed"] & 1 == 0 for i in range(20))
    with pytest.raises(IndexError):
        held_out[40]
    with pytest.raises(ValueError, match=r"task.least_path must be in .1, 8., got 9"):
        MazeTask(task.sim, least_path=9)
    with pytest.raises(ValueError, match="BlockMaze alone"):
        MazeTask(GymLevelSim("sims.hurdles:Hurdles-v0"))


def test_the_observation_ends_with_the_student():
    sim = StudentLevelSim("BlockMaze-v0")
    assert sim.sizes()["observation_dims"] == 163 and sim.contract()["students"] == 2
    code = sim.level_space.encode(WALL, 0)
    env = sim.make(2)
    observation, _ = env.reset(seed=[2 * code, 2 * (code + 1)])
    np.testing.assert_array_equal(observation[:, -1], [0, 1])
    np.testing.assert_array_equal(observation[0, :-1], observation[1, :-1])
    np.testing.assert_array_equal(np.flatnonzero(observation[0, 81:-1]), [9 * 7 + 8])
    observation, *_ = env.step(np.array([DOWN, DOWN]))
    np.testing.assert_array_equal(observation[:, -1], [0, 1])
    np.testing.assert_array_equal(np.flatnonzero(observation[0, 81:-1]), [9 * 6 + 8])
