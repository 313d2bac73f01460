"""Skills of the crafting world: decisions and rewards by hand, and two experts against each other."""

import numpy as np
import pytest

from sims.craft.expert import count_steps
from sims.craft.skills import CraftSkillSim, run_skill
from sims.task import SimTask
from tests.sims.craft.test_world import place
from tests.sims.craft.worlds import TINY, default

LOG, STONE, PLANKS, TABLES = range(4)


def skilled(**options):
    return CraftSkillSim(**{**TINY, **options})


def test_a_whole_episode_by_hand():
    """Agent in the middle; logs above, to the upper left and to the left of it, a stone below."""
    env = skilled().make(1)
    env.reset(seed=[0])
    place(env.envs[0])
    played = [
        (LOG, 2, {"log": 1}),  # up, collect
        (PLANKS, 1, {"plank": 2}),
        (STONE, 3, {"plank": 2}),  # down, down, collect, for which a table is not held
        (TABLES, 1, {"plank": 2}),  # takes three planks
        (LOG, 3, {"log": 1, "plank": 2}),  # up, left, collect: the log of the middle row is nearest
        (PLANKS, 1, {"plank": 4}),
        (TABLES, 1, {"plank": 1, "table": 1}),
    ]
    total = 0
    for skill, decisions, held in played:
        _, rewards, done, late, infos = env.step([skill])
        total += decisions
        assert infos["executed"].tolist() == [decisions] and infos["scores"]["decisions"].tolist() == [total]
        assert env.envs[0].named_state()["held"] == held and rewards[0] == 0 and not done[0] and not late[0]
    text = "You hold 1 plank, 1 table. There is log, stone to collect. Your task: stone."
    assert env.captions() == [text]
    _, rewards, done, late, infos = env.step([STONE])
    assert rewards[0] == 1 and done[0] and not late[0] and infos["executed"][0] == 3  # down, right, collect
    _, rewards, done, _, infos = env.step([LOG])  # an ended world keeps still
    assert rewards[0] == 0 and done[0] and infos["executed"][0] == 0


def test_skills_end_early_and_without_a_piece():
    world = skilled().make_world()
    place(world)
    assert run_skill(world, STONE, 1) == (0.0, 1) and (world.row, world.column) == (2, 1)
    for _ in range(3):
        run_skill(world, LOG, 20)
    before = world.fields.copy()
    assert run_skill(world, LOG, 20) == (0.0, 1) and (world.fields == before).all() and world.held[LOG] == 3
    world.max_steps = world.steps + 2
    assert run_skill(world, STONE, 20)[1] <= 2 and world.steps <= world.max_steps
    with pytest.raises(ValueError, match=r"sim\.skill_steps must be at least 1"):
        skilled(skill_steps=0)


def test_the_expert_of_skills_takes_as_many_decisions_as_that_of_decisions():
    sim = CraftSkillSim(**{name: getattr(default(), name) for name in ("materials", "recipes", "target")})
    task = SimTask(sim, 8)
    assert sim.skills[:4] == ["collect wood", "collect stone", "collect iron ore", "make plank"]
    for index in range(8):
        seed = task[index].info["seed"]
        env = sim.make(1)
        env.reset(seed=[seed])
        while not env.over[0]:
            _, rewards, *_, infos = env.step(sim.expert(env))
        world = default().make_world()
        world.reset(seed)
        assert rewards[0] == 1 and infos["scores"]["decisions"][0] == count_steps(world)
    assert sim.sizes()["actions"] == 11 and sim.contract()["skill_steps"] == 20


def test_a_saved_environment_goes_on():
    one, other = skilled().make(2), skilled().make(2)
    rng = np.random.default_rng(0)
    one.reset(seed=[2, 4])
    for _ in range(3):
        one.step(rng.integers(4, size=2))
    other.load_state_dict(one.state_dict())
    for _ in range(6):
        actions = rng.integers(4, size=2)
        for first, second in zip(one.step(actions)[:4], other.step(actions)[:4]):
            assert (first == second).all()
