"""Tech trees: what an item takes, against a search over all ways to make it, and trees that are refused by item."""

import itertools

import numpy as np
import pytest

from sims.craft.tree import TechTree, build_tree
from tests.sims.craft.worlds import TINY, default, tiny


def test_requirements_by_hand():
    # a stone takes a table, held: 3 planks in makings of 2, so 2 makings and 2 logs; the planks needed are 3
    assert tiny().tree.requirements("stone") == {"log": 2, "stone": 1, "plank": 3, "table": 1}
    # a stone pickaxe: its stick, the wood pickaxe's stick and plank, the table's two planks: 5 planks of 5 wood
    taken = {"wood": 5, "stone": 1, "plank": 5, "stick": 2, "table": 1, "wood_pickaxe": 1, "stone_pickaxe": 1}
    assert default().tree.requirements("stone_pickaxe") == taken


def can_make(tree: TechTree, target: str, counts: dict[str, int]) -> bool:
    """Whether any order of collecting and making gives the target, by a search over what is held and left."""
    start = (tuple(counts.values()), (0,) * len(tree.items))
    seen, queue = {start}, [start]
    ingredients, tools = tree.needs()
    for left, held in queue:
        if held[tree.items.index(target)]:
            return True
        for item, name in enumerate(tree.items):
            enough = all(have >= need for have, need in zip(held, ingredients[item]))
            if not enough or not all(held[tool] for tool in np.flatnonzero(tools[item])):
                continue
            if name in counts and not left[item]:
                continue
            after = tuple(
                have - int(need) + (tree.steps[name].makes if place == item else 0)
                for place, (have, need) in enumerate(zip(held, ingredients[item]))
            )
            rest = tuple(number - (place == item) for place, number in enumerate(left)) if name in counts else left
            if (rest, after) not in seen:
                seen.add((rest, after))
                queue.append((rest, after))
    return False


def draw_tree(rng: np.random.Generator) -> TechTree:
    """Two materials and three recipes, each of earlier items, whose tools are never ingredients."""
    names = ["a", "b", "c", "d", "e"]
    parts, materials, recipes = {"a", "b"}, {"a": {"count": 9}, "b": {"count": 9}}, {}
    for place in (2, 3, 4):
        name = names[place]
        as_tool = place < 4 and rng.random() < 0.4
        chosen = rng.choice(sorted(parts), size=int(rng.integers(1, 3)), replace=False)
        tools = [tool for tool in recipes if tool not in parts and rng.random() < 0.7]
        amounts = {str(part): int(rng.integers(1, 3)) for part in chosen}
        recipes[name] = {"from": amounts, "tools": tools, "makes": int(rng.integers(1, 3))}
        parts |= set() if as_tool else {name}
    if rng.random() < 0.5 and (tools := [name for name in recipes if name not in parts]):
        needed = {part for name in tools for part in recipes[name]["from"]}
        deeper = {part for recipe in recipes.values() for part in recipe["from"]} if needed & set(recipes) else needed
        if "b" not in needed | deeper:
            materials["b"]["tools"] = tools
    return build_tree(materials, recipes)


@pytest.mark.parametrize("seed", range(12))
def test_requirements_are_the_fewest_materials_of_a_search_over_all_ways(seed):
    tree = draw_tree(np.random.default_rng(seed))
    for target in tree.items[2:]:
        needed = tree.requirements(target)
        a, b = needed.get("a", 0), needed.get("b", 0)
        if a + b > 12:
            continue
        assert can_make(tree, target, {"a": a, "b": b}), (tree, target)
        for less in itertools.product(range(a + 1), range(b + 1)):
            assert less == (a, b) or not can_make(tree, target, {"a": less[0], "b": less[1]}), (tree, target, less)


def test_an_order_has_what_an_item_needs_before_it():
    order = default().tree.order
    for item, step in default().tree.steps.items():
        assert all(order.index(name) < order.index(item) for name in (*step.ingredients, *step.tools))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipes": {**TINY["recipes"], "plank": {"from": {"wod": 1}}}}, r"'plank' needs 'wod', which is neither in"),
        ({"recipes": {**TINY["recipes"], "plank": {"from": {"log": 1}, "tools": ["saw"]}}}, "'plank' needs 'saw'"),
        (
            {"recipes": {"plank": {"from": {"table": 1}}, "table": {"from": {"plank": 1}}}},
            "'table' needs itself, table -> plank -> table; break the cycle",
        ),
        (
            {"recipes": {**TINY["recipes"], "table": {"from": {"plank": 1}, "tools": ["stone"]}}},
            "'stone' needs itself, stone -> table -> stone",
        ),
        (
            {"recipes": {**TINY["recipes"], "chair": {"from": {"table": 1}}}},
            "'table' is a tool of 'stone' and an ingredient of 'chair'",
        ),
        ({"target": "gold"}, r"sim\.target='gold' is no item"),
        (
            {"materials": {**TINY["materials"], "log": {"count": 1}}},
            r"'stone' cannot be reached: it takes 2 'log' and the grid has 1; raise sim\.materials\.log\.count",
        ),
        ({"materials": {**TINY["materials"], "plank": {"count": 1}}}, "'plank' is in sim.materials and in sim.recipes"),
        ({"materials": {"log": {"number": 3}}}, r"sim\.materials\.log has \['number'\]; it takes"),
        ({"materials": {"log": 3}}, r"sim\.materials\.log is 3"),
        ({"materials": {"log": {"count": 0}}}, r"sim\.materials\.log\.count must be a whole number from 1 on, got 0"),
        ({"materials": {"log": {"count": 1, "tools": "axe"}}}, r"sim\.materials\.log\.tools must be a list"),
        ({"materials": {}}, r"sim\.materials is empty"),
        ({"recipes": {"plank": {"tools": []}}}, r"sim\.recipes\.plank\.from must have amounts"),
        ({"recipes": {"plank": {"from": {"log": 1.5}}}}, r"sim\.recipes\.plank\.from\.log must be a whole"),
        ({"recipes": {"plank": {"from": {"log": 1}, "makes": 0}}}, r"sim\.recipes\.plank\.makes must be"),
        ({"size": 2}, r"sim\.size=2: 4 pieces of material and an agent"),
        ({"size": 1}, r"sim\.size must be at least 2"),
        ({"max_steps": 0}, r"sim\.max_steps must be at least 1"),
    ],
)
def test_refusals_name_the_item(options, message):
    with pytest.raises(ValueError, match=message):
        tiny(**options)
