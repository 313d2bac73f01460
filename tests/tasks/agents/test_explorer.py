"""The explorer of the wiki: what it follows, and the expert that wastes its calls."""

import pytest

from tasks.split_facts.task import SplitFacts
from tasks.wiki.data import path_of
from tasks.wiki.explorer import ExploredWiki, Explorer, NoPage
from tasks.wiki.task import Wiki

TASK = Wiki(people=60)
EXPLORER = Explorer(TASK)


def test_links_are_followed():
    base = TASK.knowledge_bases["train"]
    name, first, second = base.questions[0]
    middle = base.facts[name][first]
    assert EXPLORER.run(f"{name} {first}") == middle
    assert EXPLORER.run(f"{name} {first} {second}") == base.facts[middle][second] == TASK[0].answer
    assert EXPLORER.run(f"{name} {first} {second} kin") == TASK[0].answer  # two clicks
    assert Explorer(TASK, clicks=1).run(f"{name} {first} {second}") == middle
    held_out = next(iter(TASK.knowledge_bases["held_out"].facts))
    assert EXPLORER.run(f"{held_out} kin")  # one web


@pytest.mark.parametrize("query", ["", "zzzz kin", "{name}", "{name} nephew", "{name} kin nephew"])
def test_what_is_nowhere_is_an_error(query):
    name = TASK.knowledge_bases["train"].questions[0][0]
    with pytest.raises(NoPage):
        EXPLORER.run(query.replace("{name}", name))
    with pytest.raises(ValueError, match="wiki"):
        Explorer(SplitFacts())


def play(script, call="?{query};"):
    """The queries of a script, without thoughts, and what the explorer returns to the last one."""
    before, after = call.split("{query}")
    queries = [turn.partition(before)[2].removesuffix(after) for turn in script[:-1]]
    return queries, [EXPLORER.run(query) for query in queries][-1]


def test_a_script_of_the_expert_without_waste():
    task = ExploredWiki(people=60, direct=0, wandering=0, repeated=0, thoughtful=0)
    name, first, second = task.knowledge_bases["train"].questions[5]
    queries, last = play(task.script(5))
    middle = task.knowledge_bases["train"].facts[name][first]
    assert queries == [f"{name} {first}", f"{middle} {second}"] and last == task[5].answer == task.script(5)[-1]
    direct = ExploredWiki(people=60, direct=1, thoughtful=0)
    assert play(direct.script(5)) == ([f"{name} {first} {second}"], task[5].answer)


def test_the_expert_repeats_thinks_and_wanders_and_says_what_it_found():
    task = ExploredWiki(people=60, direct=0, wandering=1, repeated=1, thoughtful=1)
    right = []
    for index in range(40):
        script = task.script(index)
        queries, last = play(script)
        assert len(queries) == 3 and queries[0] == queries[1] and last == script[-1]
        assert all(turn.startswith("so, ?") for turn in script[:-1])
        right.append(last == path_of(task.knowledge_bases["train"].questions[index], task.knowledge_bases["train"])[-1])
    assert 8 < sum(right) < 32  # the random link is one of two
