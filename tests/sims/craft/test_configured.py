"""Configured crafting worlds: pieces, stock and rewards by hand, and configurations that are refused by their key."""

import numpy as np
import pytest

from sims.craft.configured import ConfiguredCraftSim, count_pieces
from sims.craft.world import CraftWorld
from tests.sims.craft.test_world import COLLECT, PLANK, TABLE, UP, place
from tests.sims.craft.worlds import TINY

LOG, STONE, PLANKS, TABLES = range(4)


def configured(**options):
    return ConfiguredCraftSim(**{**TINY, **options})


def test_every_first_item_pays_and_a_stock_does_not():
    env = configured().make(1)
    env.reset(seed=[0], options={"configurations": [{"inventory": {"plank": 3}}]})
    world = env.envs[0]
    assert world.named_state()["held"] == {"plank": 3} and not world.had.any()
    fields = world.fields.copy()
    inventory = world.held.copy()
    place(world)
    assert world.held[PLANKS] == 3  # the configuration holds at each reset of the world
    paid = []
    for action in (TABLE, UP, COLLECT, PLANK, PLANK, UP):
        _, rewards, done, _, infos = env.step([action])
        paid.append(rewards[0])
    assert paid == [1, 0, 1, 1, 0, 0] and not done[0]  # table, log, plank
    assert [infos["scores"][f"skill/{name}"][0] for name in ("log", "stone", "plank", "table")] == [1, 0, 1, 1]
    assert infos["scores"]["success"][0] == 0
    world.row, world.column = 2, 1
    _, rewards, done, *_ = env.step([COLLECT])
    assert rewards[0] == 1 and done[0]
    env.reset(seed=[0], options={"configurations": [{}]})
    assert not env.envs[0].held.any()
    env.reset(seed=[0], options={"configurations": [{"inventory": {"plank": 3}}]})
    assert (env.envs[0].fields == fields).all() and (env.envs[0].held == inventory).all()


def test_rarity_changes_the_pieces_and_the_original_world_is_that_of_the_plain_simulator():
    sim = configured(size=4)
    assert count_pieces({"rarity": {"log": "very common", "stone": "rare"}}, sim.tree) == {"log": 6, "stone": 1}
    assert count_pieces({"rarity": {"log": "rare"}}, sim.tree) == {"log": 2, "stone": 1}  # 1.5 and .5, rounded up
    env = sim.make(2)
    env.reset(seed=[4, 4], options={"configurations": [{"rarity": {"log": "very common"}}, {}]})
    assert [(world.fields == LOG).sum() for world in env.envs] == [6, 3]
    plain = CraftWorld(sim.tree, sim.target, sim.size, sim.max_steps)
    plain.reset(4)
    assert (env.envs[1].fields == plain.fields).all() and env.envs[1].row == plain.row
    assert env.envs[0].tree is sim.tree


def test_a_masked_reset_leaves_the_other_worlds():
    env = configured().make(2)
    env.reset(seed=[0, 2])
    env.step([UP, UP])
    before = env.envs[0].fields.copy(), env.envs[0].steps
    stocked = [{"inventory": {"log": 1}}, {"inventory": {"log": 2}}]
    env.reset(seed=[6, 6], options={"reset_mask": np.array([False, True]), "configurations": stocked})
    assert (env.envs[0].fields == before[0]).all() and env.envs[0].steps == 1 and not env.envs[0].held.any()
    assert env.envs[1].held.tolist() == [2, 0, 0, 0] and env.envs[1].steps == 0


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ("very common", "a configuration is an object with rarity and inventory"),
        ({"biome": {}}, "biome: no such setting; there are rarity and inventory"),
        ({"inventory": ["log"]}, "inventory: give an object by name"),
        ({"rarity": {"plank": "rare"}}, "rarity.plank: no such material; there are log, stone"),
        ({"rarity": {"log": "often"}}, "rarity.log: write very common, common, rare, got 'often'"),
        ({"rarity": {"log": []}}, "rarity.log: write very common"),
        ({"inventory": {"sword": 1}}, "inventory.sword: no such item; there are log, stone, plank, table"),
        ({"inventory": {"log": 10}}, "inventory.log: a whole number from 0 to 9, got 10"),
        ({"inventory": {"log": True}}, "inventory.log: a whole number"),
        ({"inventory": {"log": 1.0}}, "inventory.log: a whole number"),
        ({"inventory": {"table": 2}}, "inventory.table: a whole number from 0 to 1, got 2"),
        ({"inventory": {"stone": 1}}, "inventory.stone: the target ends an episode"),
    ],
)
def test_configurations_are_refused_by_their_key(configuration, reason):
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")):
        configured().check_configuration(configuration)


def test_more_pieces_than_fields_are_refused():
    materials = {"log": {"count": 2}, "stone": {"count": 1, "tools": ["table"]}}
    sim = configured(size=2, materials=materials)
    with pytest.raises(ValueError, match="rarity: 5 pieces and an agent do not fit on 4 fields"):
        sim.check_configuration({"rarity": {"log": "very common"}})
    sim.check_configuration({"rarity": {"log": "rare"}})


def test_configurations_that_fit_are_accepted():
    for configuration in ({}, {"rarity": {"log": "rare"}}, {"inventory": {"log": 9, "table": 1, "plank": 0}}):
        configured().check_configuration(configuration)
    assert "of stone none" in configured().settings[1]
