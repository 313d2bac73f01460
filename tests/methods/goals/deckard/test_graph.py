"""DECKARD's graph: success averages and goals by hand, the correction of wrong recipes, subgoals, and guides."""

import json

import numpy as np
import pytest

from mmrl.methods.goals.deckard.graph import RecipeGraph, update_success
from mmrl.methods.goals.deckard.guides import BlankGuide, ScriptedGuide, read_guesses
from tests.sims.craft.worlds import default

LOG, PLANK, TABLE, STONE = range(4)
NAMES = ["log", "plank", "table", "stone"]


def amounts(**parts: int) -> np.ndarray:
    return np.array([parts.get(name, 0) for name in NAMES])


NO_TOOLS = np.zeros(4, bool)


def chain(**guesses: dict[str, int]) -> RecipeGraph:
    """log -> plank -> table, and a stone that takes nothing; other guesses by item."""
    graph = RecipeGraph(4)
    for item, parts in enumerate(({}, {"log": 1}, {"plank": 2}, {})):
        graph.guess(item, amounts(**guesses.get(NAMES[item], parts)), NO_TOOLS)
    return graph


def test_the_success_average_by_hand():
    # s <- .9 s + .1 [success]: success .1, success .9 * .1 + .1 = .19, failure .9 * .19 = .171
    average, averages = 0.0, []
    for achieved in (True, True, False):
        average = update_success(average, achieved)
        averages.append(average)
    assert averages == pytest.approx([0.1, 0.19, 0.171])
    graph = chain()
    for achieved in (True, True, False):
        graph.note(PLANK, achieved)
    assert graph.success == pytest.approx([0, 0.171, 0, 0])


def test_boundaries_by_hand():
    graph = chain()
    # on the way to a table: nothing is verified, so the log; then what logs alone make; then the table
    assert graph.find_boundary(TABLE) == [LOG] and graph.find_boundary() == [LOG, STONE]
    graph.verify(LOG, amounts(), NO_TOOLS)
    assert graph.find_boundary(TABLE) == [PLANK] and graph.list_candidates(TABLE) == [LOG, PLANK]
    graph.verify(PLANK, amounts(log=1), NO_TOOLS)
    assert graph.find_boundary(TABLE) == [TABLE] and graph.list_candidates(TABLE) == [LOG, PLANK, TABLE]
    graph.verify(TABLE, amounts(plank=2), NO_TOOLS)
    assert graph.list_candidates(TABLE) == [TABLE] and graph.list_candidates() == [LOG, PLANK, TABLE, STONE]


def test_a_tool_counts_for_the_boundary():
    graph = chain()
    graph.guess(STONE, amounts(), np.array([False, False, True, False]))
    assert graph.find_boundary(STONE) == [LOG] and graph.list_needs(STONE) == [TABLE]
    for item in (LOG, PLANK, TABLE):
        graph.verify(item, graph.ingredients[item], NO_TOOLS)
    assert graph.find_boundary(STONE) == [STONE]


def test_a_wrong_edge_is_removed_by_the_real_craft():
    graph = chain(table={"stone": 1})  # a table really takes two planks
    assert graph.find_boundary(TABLE) == [STONE] and graph.list_needs(TABLE) == [STONE]
    assert graph.find_subgoal(TABLE, [0, 2, 0, 0]) == STONE
    graph.counts[1] = 30
    graph.verify(TABLE, amounts(plank=2), NO_TOOLS)
    assert graph.list_needs(TABLE) == [PLANK] and graph.ingredients[TABLE].tolist() == [0, 2, 0, 0]
    assert graph.verified.tolist() == [False, False, True, False] and graph.first_step[TABLE] == 30
    graph.counts[1] = 40
    graph.verify(TABLE, amounts(plank=2), NO_TOOLS)
    assert graph.first_step[TABLE] == 30
    assert graph.find_subgoal(TABLE, [0, 2, 0, 0]) == TABLE


def test_goals_that_never_were_one_come_first_and_then_all_alike():
    graph = chain()
    graph.verify(LOG, amounts(), NO_TOOLS)
    rng = np.random.default_rng(0)
    assert sorted(graph.draw_goal(rng) for _ in range(3)) == [LOG, PLANK, STONE]
    assert graph.visits.tolist() == [1, 1, 0, 1] and graph.counts.tolist() == [3, 0]
    drawn = [graph.draw_goal(rng) for _ in range(600)]
    # 200 of each, with a standard deviation of 11.5
    assert all(abs(drawn.count(item) - 200) < 58 for item in (LOG, PLANK, STONE)) and TABLE not in drawn


def test_goals_where_all_guesses_are_wrong_are_any():
    graph = chain(log={"table": 1}, stone={"table": 1})  # a circle: nothing can be had
    assert graph.find_boundary() == [] and graph.list_candidates() == [LOG, PLANK, TABLE, STONE]


def test_subgoals_by_hand():
    graph = chain()
    graph.guess(STONE, amounts(), np.array([False, False, True, False]))
    expected = {(0, 0, 0, 0): LOG, (1, 0, 0, 0): PLANK, (0, 1, 0, 0): LOG, (0, 2, 0, 0): TABLE, (0, 0, 1, 0): STONE}
    assert {held: graph.find_subgoal(STONE, held) for held in expected} == expected
    # guesses with a circle end at the first item whose needs are all on the way
    circle = chain(log={"table": 1})
    assert circle.find_subgoal(TABLE, [0, 0, 0, 0]) == LOG


def test_pieces_that_remain_by_hand():
    graph = chain()
    # a table takes two planks of a log each: 2 logs, 2 planks, the table
    expected = {(0, 0, 0, 0): 5, (1, 0, 0, 0): 4, (0, 1, 0, 0): 3, (0, 2, 0, 0): 1, (5, 0, 3, 0): 3}
    assert {held: graph.count_remaining(TABLE, held) for held in expected} == expected
    assert graph.count_remaining(LOG, [5, 0, 0, 0]) == 1  # one more
    assert chain(log={"table": 1}).count_remaining(TABLE, [0] * 4) == 5


def test_subgoals_lead_to_every_item_of_the_world():
    """Giving an agent what is shown, until nothing lacks, makes every item with the pieces that a search found."""
    sim = default()
    graph, count = RecipeGraph(len(sim.items)), len(sim.items)
    for item in range(count):
        graph.guess(item, sim.needs[0][item], sim.needs[1][item])
    for goal, name in enumerate(sim.items):
        held, had = np.zeros(count, np.int64), np.zeros(count, np.int64)
        while not had[goal]:
            item = graph.find_subgoal(goal, held)
            assert (held >= sim.needs[0][item]).all() and (held[sim.needs[1][item]] > 0).all()
            held += (np.arange(count) == item) - sim.needs[0][item]
            had[item] += 1
        assert {sim.items[item]: int(had[item]) for item in np.flatnonzero(had)} == sim.tree.requirements(name)


@pytest.mark.parametrize("wrong", [0.0, 0.25, 1.0])
def test_the_scripted_guide_plants_as_many_errors_as_are_asked_for(wrong):
    sim = default()
    for seed in range(20):
        graph, again = RecipeGraph(11), RecipeGraph(11)
        for each in (graph, again):
            ScriptedGuide(wrong, seed).fill(each, sim.items, sim.needs)
        assert (graph.ingredients == again.ingredients).all() and graph.guessed.all() and not graph.verified.any()
        differs = (graph.ingredients != sim.needs[0]).any(1) | (graph.tools != sim.needs[1]).any(1)
        assert differs.sum() == round(11 * wrong)
        assert not np.diag(graph.ingredients).any() and not np.diag(graph.tools).any()
        # a wrong recipe takes as many things as the real one, or one in place of none
        sizes = [(part > 0).sum(1) + tools.sum(1) for part, tools in ((graph.ingredients, graph.tools), sim.needs)]
        assert (sizes[0] == np.where(differs, np.maximum(sizes[1], 1), sizes[1])).all()


def test_a_blank_guide_makes_every_item_a_goal():
    graph = RecipeGraph(4)
    BlankGuide().fill(graph, NAMES, (np.ones((4, 4)), np.ones((4, 4), bool)))
    assert graph.find_boundary() == [LOG, PLANK, TABLE, STONE] and graph.find_subgoal(TABLE, [0] * 4) == TABLE


def test_guesses_of_a_language_model():
    written = {
        "plank": {"from": {"log": 1, "glue": 2}, "tools": ["saw"]},
        "table": {"from": {"plank": "two", "table": 1, "log": 3}, "tools": "log"},
        "stone": {"from": [], "tools": ["table", "stone", 3]},
        "axe": {"from": {"log": 1}},
    }
    guesses = read_guesses(f"Here it is:\n```json\n{json.dumps(written)}\n```", NAMES)
    assert [parts.tolist() for parts, _ in guesses] == [[0] * 4, [1, 0, 0, 0], [3, 0, 0, 0], [0] * 4]
    assert [tools.tolist() for _, tools in guesses] == [[False] * 4] * 3 + [[False, False, True, False]]
    for answer in ("", "no idea", "{", "{} {", "[1]", '{"plank": 3}', '{"plank": {"from": {"log": -1}}}'):
        assert not any(parts.any() or tools.any() for parts, tools in read_guesses(answer, NAMES))


def test_refusals():
    with pytest.raises(ValueError, match=r"rollout\.guide\.wrong must be in \[0, 1\], got 1\.5"):
        ScriptedGuide(1.5)


def test_what_no_guide_guessed_is_not_at_the_boundary():
    graph = RecipeGraph(4)
    graph.guess(PLANK, amounts(), NO_TOOLS)
    assert graph.find_boundary() == [PLANK]


def test_tools_that_are_no_names_are_passed_over():
    ((_, tools),) = read_guesses(json.dumps({"stone": {"tools": [1, ["log"], "table"]}}), NAMES)[3:]
    assert tools.tolist() == [False, False, True, False]
