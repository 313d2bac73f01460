"""The state vector of a tabletop task, by hand from the physics; rewards and ends are those of the task."""

import numpy as np
import pytest

from sims.tabletop.positions import TabletopPositions
from sims.tabletop.sims import PickPlace, Push, Reach
from sims.tabletop.suite import Suite

SEEDS = [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", [Reach, Push])
def test_the_state_is_read_from_the_physics(kind):
    """Row by row with loops: tip, set-point, named things, then the others in their order."""
    sim = TabletopPositions(kind(level="easy"))
    env = sim.make(len(SEEDS))
    observation, _ = env.reset(seed=SEEDS)
    observation, *_ = env.step(np.full((len(SEEDS), 3), 0.7, np.float32))
    table = env.unwrapped.table
    for i in range(len(SEEDS)):
        tip, setpoint, things = table.physics.tip[i], table.physics.setpoint[i], table.physics.objects[i]
        named = table.named[i].tolist()
        order = named + [k for k in range(len(things)) if k not in named]
        expected = [*(tip - [0.48, 0, 0.1]) / 0.1, *(setpoint - tip) / 0.015]
        expected += [number for k in order for number in (things[k] - tip) / 0.1]
        if len(named) == 2:
            expected += [*(things[named[1]] - things[named[0]]) / 0.1, *table.physics.turns[i, named[0], :2, 0]]
        assert observation[i] == pytest.approx(expected, abs=1e-5)
        assert len(expected) == sim.sizes()["observation_dims"] == env.single_observation_space.shape[0]


def test_the_expert_succeeds_and_its_demonstrations_are_its_actions():
    sim = TabletopPositions(Push(level="easy"))
    env = sim.make(2)
    observation, _ = env.reset(seed=[0, 2])
    rewards, episodes = np.zeros(2), sim.demonstrate([0, 2])
    for step in range(40):
        if not env.unwrapped.live.any():
            break
        actions = sim.expert(env)[:, 0]
        for i in np.flatnonzero(env.unwrapped.live):
            raw, action = episodes[i][step]
            assert np.array_equal(raw["state"], observation[i]) and np.array_equal(action, actions[i])
        observation, reward, *_ = env.step(actions)
        rewards += reward
    assert rewards.tolist() == [1, 1]


def test_a_state_that_is_loaded_goes_on_in_the_same_way():
    env = TabletopPositions(Reach(level="easy")).make(2)
    env.reset(seed=[0, 1])
    state, action = env.state_dict(), np.full((2, 3), -0.4, np.float32)
    first = env.step(action)[0]
    env.load_state_dict(state)
    assert np.array_equal(env.step(action)[0], first)


def test_other_tasks_are_refused():
    for sim in (PickPlace(), Suite(tasks=("reach", "push"))):
        with pytest.raises(ValueError, match="positions tell the state of reach and push alone"):
            TabletopPositions(sim)
