"""EnvGen's writers: the rule by hand, what a language model is asked, and configurations read from answers."""

import json

import pytest

from mmrl.methods.levels.envgen.score import SkillSuccess
from mmrl.methods.levels.envgen.writers import (
    ModelWorldWriter,
    RuleWriter,
    SkillFeedback,
    ask_for_worlds,
    count_depths,
    read_configurations,
)
from sims.craft.configured import ConfiguredCraftSim
from tests.sims.craft.worlds import TINY, default
from tests.tools.programs.chat_server import serve_texts

SIM = ConfiguredCraftSim(**TINY)


def tell(sim=SIM, count=2, **options):
    return SkillFeedback(sim.items, sim.needs, sim.target, sim.settings, count, **options)


def test_depths_are_the_longest_chains():
    """wood, stone, iron_ore, plank, stick, table, wood_pickaxe, stone_pickaxe, furnace, iron, iron_pickaxe: wood,
    plank, table or stick, wood_pickaxe, stone, stone_pickaxe or furnace, iron_ore, iron, iron_pickaxe."""
    assert count_depths(*default().needs) == [0, 4, 6, 1, 2, 2, 3, 5, 5, 7, 8]


def test_the_stock_is_what_the_weakest_skills_take():
    """Without success the skills nearest to nothing come first: a plank takes a log, a table three planks."""
    plank, table = {"rarity": {}, "inventory": {"log": 1}}, {"rarity": {}, "inventory": {"plank": 3}}
    stone = {"rarity": {}, "inventory": {"table": 1}}
    assert json.loads(RuleWriter().write_worlds(tell())) == [plank, table]
    success = {name: SkillSuccess(10, wins) for name, wins in zip(SIM.items, (10, 0, 9, 4))}
    assert json.loads(RuleWriter().write_worlds(tell(success=success))) == [stone, table]
    assert json.loads(RuleWriter().write_worlds(tell(success=success, count=4))) == [stone, table, plank, stone]
    (world,) = json.loads(RuleWriter("very common").write_worlds(tell(count=1)))
    assert world["rarity"] == {"log": "very common", "stone": "very common"}
    sim = ConfiguredCraftSim(**{name: getattr(default(), name) for name in ("materials", "recipes")}, target="furnace")
    for world in json.loads(RuleWriter().write_worlds(tell(sim, count=12))):
        if "furnace" not in world["inventory"]:  # the target, which an iron takes
            sim.check_configuration(world)


def test_a_language_model_is_told_what_it_needs():
    success = {"log": SkillSuccess(4, 3), "table": SkillSuccess(4, 0)}
    previous = [{"inventory": {"log": 1}}]
    text = ask_for_worlds(tell(success=success, previous=previous, refused=["1: biome: no such setting"]))
    for part in (
        *("- log is collected", "- stone is collected, with table in hand", "- table uses up 3 plank"),
        *("log: 75.0% +- 21.7%", "table: 0.0% +- 0.0%", json.dumps(previous), "1: biome: no such setting"),
        *(*SIM.settings, "JSON list of 2 objects"),
    ):
        assert part in text
    assert "Success" not in ask_for_worlds(tell()) and "cannot be used" not in ask_for_worlds(tell())
    with serve_texts(["[{}, {}]"]) as (url, asked):
        assert ModelWorldWriter(url, "any").write_worlds(tell(number=3)) == "[{}, {}]"
    assert asked[0]["messages"][0]["content"] == ask_for_worlds(tell(number=3)) and asked[0]["seed"] == 3


@pytest.mark.parametrize(
    ("answer", "usable", "refused"),
    [
        ('Sure! [{"inventory": {"log": 1}}, {}] Good luck.', [{"inventory": {"log": 1}}, {}], []),
        ('[{"biome": {}}, {}, {}]', [{}], ["1: biome: no such setting; there are rarity and inventory"]),
        ('[{"inventory": {"log": 1}}]', [{"inventory": {"log": 1}}], ["2: missing"]),
        ("[3, {}]", [{}], ["1: a configuration is an object with rarity and inventory, got 3"]),
        ("I cannot.", [], ["there is no list in 'I cannot.'"]),
    ],
)
def test_configurations_are_read_and_refused_one_by_one(answer, usable, refused):
    assert read_configurations(answer, 2, SIM.check_configuration) == (usable, refused)


def test_a_broken_list_is_refused_as_a_whole():
    usable, refused = read_configurations('[{"inventory": }]', 2, SIM.check_configuration)
    assert usable == [] and len(refused) == 1 and refused[0].startswith("the list is no JSON: Expecting value")
    usable, refused = read_configurations("[" * 100_000 + "]", 2, SIM.check_configuration)
    assert usable == [] and len(refused) == 1
