"""Noisy rooms and the players in them: what is seen, counted and paid, by hand."""

import math

import gymnasium
import numpy as np
import pytest

from sims.rooms.noisy_rooms import COLOURS, DARK, FLOOR, RUNNING, STOPPED, TOGGLE, WALL, NoisyRooms
from sims.rooms.players import CONTROL, EXPLORE, CategoricalDensity, SurprisePlayers, make_players

UP, RIGHT, DOWN, LEFT = range(4)


def walk(env, *actions):
    for action in actions:
        seen, *rest = env.step(action)
    return (seen, *rest)


def test_what_is_seen_from_the_plain_room_to_the_dark_one():
    """Cells of three rooms of 3 x 3: columns 0 to 2 are dark, 3 is a wall with a door, 4 to 6 have colours, 7 is a wall
    with a door, and 8 to 10 are plain, with the switch at row 2, column 10. The agent starts at row 1, column 5."""
    env = NoisyRooms()
    seen, _ = env.reset(seed=0)
    assert (seen >= COLOURS).all() and env.agent == (1, 5) and env.states == 2 * (27 + 2)
    seen, *_ = walk(env, RIGHT, RIGHT)  # in the door: walls above and below it
    assert seen.reshape(3, 3)[:, 1].tolist() == [WALL, FLOOR, WALL] and (seen.reshape(3, 3)[:, 0] >= COLOURS).all()
    seen, *_ = walk(env, RIGHT, RIGHT, RIGHT, DOWN)  # on the switch, in the corner
    assert seen.tolist() == [FLOOR, FLOOR, WALL, FLOOR, RUNNING, WALL, WALL, WALL, WALL]
    seen, *_ = walk(env, TOGGLE)
    assert seen.tolist() == [FLOOR, FLOOR, WALL, FLOOR, STOPPED, WALL, WALL, WALL, WALL]
    seen, *_ = walk(env, UP, *[LEFT] * 7)  # through the noisy room to the other door
    assert env.agent == (1, 3)
    assert seen.tolist()[::3] == [DARK] * 3 and seen.tolist()[1::3] == [WALL, FLOOR, WALL]
    seen, reward, terminated, truncated, info = walk(env, LEFT)
    assert seen.tolist() == [DARK] * 9 and (reward, terminated, truncated) == (0.0, False, False)
    # 13 steps to other cells: with the noise (1, 5) to (1, 10) and (2, 10), without it the switch and 9 cells more
    assert info["scores"]["visited"] == pytest.approx((7 + 10) / 58)


def test_the_switch_stops_the_colours_and_nothing_else_does():
    env = NoisyRooms()
    env.reset(seed=0)
    colours = [walk(env, TOGGLE)[0].tolist() for _ in range(5)]
    assert len(set(map(tuple, colours))) == 5 and env.running  # the action does nothing away from the switch
    walk(env, *[RIGHT] * 5, DOWN, TOGGLE, UP, *[LEFT] * 5)
    seen = [walk(env, UP, DOWN)[0].tolist() for _ in range(4)]
    assert not env.running and seen == [seen[0]] * 4


def test_states_are_reachable_and_walls_are_not():
    """Breadth-first over the environment's own steps finds as many states as it says it has."""
    env = NoisyRooms()
    env.reset(seed=0)
    border = {(env.agent, env.running)}
    reached = set(border)
    while border:
        place, running = border.pop()
        for action in range(5):
            env.agent, env.running = place, running
            env.step(action)
            if (state := (env.agent, env.running)) not in reached:
                reached.add(state)
                border.add(state)
    assert len(reached) == env.states == 58


def test_the_density_of_two_cells():
    """Uniform over three classes: 2 ln(1/3) = -2.197225; after [0, 1] the same is certain: 0; [2, 1] has a cell of a
    class that was never seen, at 1e-3, and one that is certain: ln 1e-3 = -6.907755."""
    density = CategoricalDensity(2, 3)
    rewards = []
    for seen in ([0, 1], [0, 1], [2, 1]):
        rewards.append(density.log_probability(np.array(seen)))
        density.add(np.array(seen))
    assert rewards == pytest.approx([-2.197225, 0.0, -6.907755], abs=1e-6)
    # three observations: cell 0 was 0 twice and 2 once
    assert density.probabilities == pytest.approx(np.array([[2 / 3, 1e-3, 1 / 3], [1e-3, 1.0, 1e-3]]))


class Script(gymnasium.Env):
    """Observations of two cells of three classes, as a list says."""

    def __init__(self, *seen):
        self.seen = [np.array(each) for each in seen]
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.MultiDiscrete([3, 3])

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.array([0, 0]), {}

    def step(self, action):
        self.at += 1
        return self.seen[self.at - 1], 5.0, False, False, {}


def test_turns_and_pay_of_the_players():
    """Two turns of Explore and two of Control, of four steps; the first half of Control's turn counts nothing."""
    seen = [[1, 1]] * 4 + [[2, 2], [2, 2], [0, 1], [0, 1]] + [[1, 1]] * 4 + [[0, 1], [0, 1], [2, 1], [0, 1]]
    env = SurprisePlayers(Script(*seen), turns=4, turn=4, grace=0.5)
    observation, _ = env.reset()
    players, rewards, ends = [], [], []
    for _ in range(16):
        players.append(int(observation[-1]))
        observation, reward, terminated, _, _ = env.step(0)
        rewards.append(reward)
        ends.append(terminated)
    assert players == ([EXPLORE] * 4 + [CONTROL] * 4) * 2
    # the density goes on over the turns: after [0, 1] twice comes [2, 1], then [0, 1] at 2/3
    third = [-6.907755, math.log(2 / 3)]
    assert rewards == pytest.approx([0] * 6 + [-2.197225, 0.0] + [0] * 6 + third, abs=1e-6)
    assert ends == [False] * 15 + [True]


def test_one_player_is_paid_at_once():
    seen = [[0, 1], [0, 1], [2, 1]]
    for players, sign, number in (("control", 1, CONTROL), ("explore", -1, EXPLORE)):
        env = SurprisePlayers(Script(*seen), turns=1, turn=3, players=players, scale=2.0)
        observation, _ = env.reset()
        steps = [env.step(0) for _ in range(3)]
        assert observation[-1] == number
        assert [step[1] for step in steps] == pytest.approx([sign * 2 * x for x in (-2.197225, 0, -6.907755)], abs=1e-5)


def test_an_observation_shows_classes_density_and_time():
    env = SurprisePlayers(Script([0, 1], [2, 1]), turns=1, turn=2, players="control")
    observation, _ = env.reset()
    assert observation.tolist() == pytest.approx([1, 0, 0, 1, 0, 0, *[1 / 3] * 6, 0, 0, 1], abs=1e-6)
    observation, *_ = env.step(0)
    shown = [1, 0, 0, 0, 1, 0, 1, 1e-3, 1e-3, 1e-3, 1, 1e-3, math.log(2), 0.5, 1]
    assert observation.tolist() == pytest.approx(shown, abs=1e-6)
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"turns": 3}, "turns must be even"),
        ({"players": "nobody"}, "players must be both, control or explore"),
        ({"grace": 1.0}, "grace"),
        ({"turn": 0}, "turn"),
        ({"side": 4}, "side must be odd"),
        ({"colours": 1}, "colours"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        make_players(**options)
