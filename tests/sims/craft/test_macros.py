"""Macro-actions of the crafting world: rewards and steps by hand, illegal places, failures, and a saved state."""

import numpy as np
import pytest
from torch.testing import assert_close

from sims.craft.macros import CraftMacroSim, discount_rewards, run_macro
from sims.task import SimTask
from tests.sims.craft.test_world import place
from tests.sims.craft.worlds import TINY, tiny

UP, DOWN, LEFT, RIGHT, COLLECT, PLANK, TABLE = range(7)
PLAN = 'def act(state):\n    return ["up", "collect", "make plank"]\n'
FAILS = 'def act(state):\n    return state["nothing"]\n'
LONG = 'def act(state):\n    return ["left"] * 50\n'


def macros(**options):
    return CraftMacroSim(**{**TINY, "slots": 3, **options})


def test_a_macro_of_three_steps_by_hand():
    """Rewards 0, 0, 1 and gamma .9: .9^2 = .81 is the reward (of the value after it .9^3 = .729:
    tests/methods/exploration/rl_gpt)."""
    assert discount_rewards([0, 0, 1], 0.9) == pytest.approx(0.81)
    sim = macros(target="plank", gamma=0.9, programs=[PLAN])
    env = sim.make(1)
    env.reset(seed=[0])
    place(env.envs[0])  # a log lies above the agent
    _, rewards, done, late, infos = env.step([TABLE + 1])
    assert rewards[0] == pytest.approx(0.81) and done[0] and not late[0]
    assert infos["executed"].tolist() == [3] and infos["scores"]["decisions"].tolist() == [3]
    # the primitive actions, one by one, are those of the world without macro-actions
    plain, other = tiny(target="plank").make(1), sim.make(1)
    for each in (plain, other):
        each.reset(seed=[0])
        place(each.envs[0])
    for action in (UP, COLLECT, PLANK):
        one, two = plain.step([action]), other.step([action])
        assert one[1] == two[1] and one[2] == two[2] and (one[0] == two[0]["state"]).all()
    assert two[1] == 1


def test_a_macro_ends_with_the_episode_and_at_its_cap():
    world = macros().make_world()
    place(world)
    world.max_steps = 2
    assert run_macro(world, [UP, COLLECT, PLANK], 1.0) == (0.0, 2) and world.steps == 2
    env = macros(programs=[LONG], macro_steps=4).make(1)
    env.reset(seed=[0])
    assert env.step([TABLE + 1])[-1]["executed"].tolist() == [4]
    world = macros(target="plank").make_world()
    place(world)
    assert run_macro(world, [UP, COLLECT, PLANK, UP, UP], 1.0) == (1.0, 3)  # nothing is played after the end


def test_without_a_plan_one_step_passes():
    env = macros(programs=["", FAILS]).make(2)
    observation, _ = env.reset(seed=[0, 1])
    assert observation["action_mask"].tolist() == [[1] * 7 + [0, 1, 0]] * 2 and observation["elapsed"].tolist() == [
        0,
        0,
    ]
    before = [world.fields.copy() for world in env.envs]
    observation, rewards, _, _, infos = env.step([TABLE + 1, TABLE + 2])
    assert infos["executed"].tolist() == [1, 1] and rewards.tolist() == [0, 0]
    assert observation["elapsed"].tolist() == [1, 1]
    assert all((world.fields == fields).all() for world, fields in zip(env.envs, before))
    assert env.failures == {1: ["line 2: KeyError: 'nothing'"]}


def test_environments_take_macros_and_primitive_actions_side_by_side():
    env = macros(programs=[PLAN, LONG]).make(3)
    env.reset(seed=[0, 0, 0])
    for world in env.envs:
        place(world)
    *_, infos = env.step([TABLE + 1, DOWN, TABLE + 2])
    assert infos["executed"].tolist() == [3, 1, 20]
    assert env.envs[0].named_state()["held"] == {"plank": 2} and env.envs[2].column == 0
    saved = env.state_dict()
    after = env.step([LEFT, TABLE + 1, UP])[0]
    env.load_state_dict(saved)
    again = env.step([LEFT, TABLE + 1, UP])[0]
    assert_close(again, after, atol=0, rtol=0)


def test_the_expert_plays_primitive_actions():
    sim = macros()
    (episode,) = SimTask(sim, 2).demonstrations([SimTask(sim, 2)[0]])
    (plain,) = SimTask(tiny(), 2).sim.demonstrate([SimTask(sim, 2)[0].info["seed"]])
    assert [action for _, action in episode] == [action for _, action in plain]
    assert all(np.array_equal(one["state"], two["state"]) for (one, _), (two, _) in zip(episode, plain))


def test_refusals():
    with pytest.raises(ValueError, match=r"sim\.programs: 2 programs for sim\.slots=1; raise sim\.slots"):
        macros(slots=1, programs=[PLAN, LONG])
    for name in ("slots", "macro_steps"):
        with pytest.raises(ValueError, match=rf"sim\.{name} must be at least 1"):
            macros(**{name: 0})
    with pytest.raises(ValueError, match=r"sim\.gamma"):
        macros(gamma=1.5)
    with pytest.raises(ValueError, match=r"slot 0: it has no function act\(state\)"):
        macros(programs=["x = 1"]).make(1)
