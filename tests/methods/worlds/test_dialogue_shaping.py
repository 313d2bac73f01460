"""Dialogue Shaping: similarity and rewards by hand, what sentences say, interviews by script and by a model."""

import pytest
import torch

from mmrl.core.types import Context, Episode, Prompt, Sampling, Turn
from mmrl.engines.local import LocalEngine
from mmrl.methods.worlds.dialogue_shaping import (
    DialogueShaping,
    ModelInterviewer,
    RandomTriples,
    ScriptedInterviewer,
    SentenceTriples,
    ShapedEpisode,
    graph_similarity,
)
from mmrl.policies.text.actions.word_scorer import WordScorer
from tasks.house import House
from tasks.house.layout import HousePlan
from tests.text_environments import Count
from tests.tools.programs.chat_server import serve_texts

A, B, C, D = (("you", "have", name) for name in "abcd")
LAYOUT = HousePlan(
    {"hall": ("attic", "kitchen"), "attic": ("hall",), "kitchen": ("hall",)},
    {"table": "kitchen", "box": "hall", "apple": "hall", "key": "attic", "book": "hall"},
    "apple",
    "table",
    "hall",
    True,
)
TASK = House(locked=True, idle=0, max_turns=12)
PROMPT = Prompt("house/train/0", ({"role": "system", "content": "Put it."},), info={"problem": LAYOUT})
NEEDED = {("you", "have", "key"), ("you", "have", "apple"), ("apple", "on", "table")}
OWNED = SentenceTriples(("have", "on"))


def ask(question):
    return TASK.ask_character(PROMPT, question)


def test_the_similarity_by_hand():
    """Of G* = {a, b, c}: nothing is 0, {a, d} has 1 of 4, all 1; two empty graphs are alike."""
    target = {A, B, C}
    assert graph_similarity(set(), target) == 0 and graph_similarity({A, D}, target) == 0.25
    assert graph_similarity(target, target) == 1 and graph_similarity(set(), set()) == 1


def play(actions, **options):
    """The episode of these actions, with the graph of what is needed as target unless another is given."""
    environment = TASK.make_environment()
    options = {"target": NEEDED, "reader": OWNED, **options}
    episode = ShapedEpisode(Episode(PROMPT, 0, 0), TASK.max_turns, **options)
    episode.read(environment.reset(PROMPT))
    for action in actions:
        episode.actions.append(action)
        episode.episode.turns.append(Turn(None))
        episode.read(environment.step(action))
    return episode


WAY = ["go to the attic", "take the key", "go to the hall", "open the box with the key", "take the apple"]
END = ["go to the kitchen", "put the apple on the table"]


def test_the_increase_of_the_similarity_is_paid():
    """Of three triples the key is the first, the apple the second, and the table the last: thirds, which sum to 1."""
    rewards = [turn.reward for turn in play(WAY + END, coefficient=2.0).episode.turns]
    assert rewards == pytest.approx([0, 2 / 3, 0, 0, 2 / 3, 0, 1 + 2 / 3])
    assert play(WAY + END).episode.info["scores"] == pytest.approx({"return": 2, "turns": 7, "exact": 1, "graph": 1})


def test_a_thing_that_is_not_needed_costs_once_and_the_sum_telescopes():
    """The book first: 0 of 4; the key: 1 of 4; the apple: 2 of 4, where without the book they were 1/3 and 2/3."""
    rewards = [turn.reward for turn in play(["take the book", *WAY]).episode.turns]
    assert rewards == pytest.approx([0, 0, 0.25, 0, 0, 0.25])
    dropped = play([*WAY[:3], "take the book"]).episode.turns
    assert [turn.reward for turn in dropped] == pytest.approx([0, 1 / 3, 0, 1 / 4 - 1 / 3])


def test_the_level_is_paid_in_every_turn_after_the_reset():
    rewards = [turn.reward for turn in play(WAY[:3], form="level").episode.turns]
    assert rewards == pytest.approx([0, 1 / 3, 1 / 3])


def test_without_a_target_or_a_coefficient_the_world_alone_pays():
    for options in ({"target": None}, {"coefficient": 0.0}):
        assert [turn.reward for turn in play(WAY + END, **options).episode.turns] == [0] * 6 + [1]


def test_what_sentences_say():
    every = SentenceTriples()
    text = "\nYou are in the hall.\nYou see the box and the cup on the shelf.\nYou have the key and the map.\nGo!"
    assert every.extract(text) == {
        ("box", "in", "hall"), ("cup", "in", "hall"), ("cup", "on", "shelf"), ("you", "have", "key"),
        ("you", "have", "map"),
    }  # fmt: skip
    assert every.extract("The key is in the attic. The cup is to be put on the shelf.") == {
        ("key", "in", "attic"), ("cup", "on", "shelf"),
    }  # fmt: skip
    assert every.extract("You have nothing. I do not know.") == set()
    assert OWNED.extract(text) == {("cup", "on", "shelf"), ("you", "have", "key"), ("you", "have", "map")}


def test_the_scripted_interviewer_asks_for_every_name_that_comes_up():
    asked = []

    def listen(question):
        asked.append(question)
        return ask(question)

    graph = ScriptedInterviewer().interview(listen, "", SentenceTriples(), "")
    assert asked[:2] == ["What shall I do?", "What do I need?"] and len(set(asked)) == len(asked)
    assert {f"Where is the {name}?" for name in ("key", "apple", "box", "table")} < set(asked)
    assert graph == NEEDED | {
        ("key", "in", "attic"), ("box", "in", "hall"), ("apple", "in", "hall"), ("apple", "in", "box"),
        ("table", "in", "kitchen"),
    }  # fmt: skip
    assert ScriptedInterviewer().interview(ask, "", OWNED, "") == NEEDED
    few = []
    ScriptedInterviewer(most=3).interview(lambda question: few.append(question) or ask(question), "", OWNED, "")
    assert len(few) == 3


def test_random_triples_have_the_relations_and_other_names():
    names = ("hat", "lamp", "bed")
    part = RandomTriples(ScriptedInterviewer(), names)
    graph = part.interview(ask, "", OWNED, "w/0")
    assert graph == part.interview(ask, "", OWNED, "w/0") and graph - NEEDED == graph
    assert {relation for _, relation, _ in graph} == {"have", "on"} and 2 <= len(graph) <= 3
    assert {name for s, _, o in graph for name in (s, o)} <= {*names, "you"}
    assert len({frozenset(part.interview(ask, "", OWNED, f"w/{i}")) for i in range(8)}) > 1


def test_a_language_model_asks_until_it_is_done_and_writes_the_triples():
    written = "I learned:\n(You, have, key)\n( apple ,on, table)\nnothing else (really)"
    with serve_texts(["Where is the key?", "Done.", written]) as (url, bodies):
        graph = ModelInterviewer(url, "m", retries=0).interview(ask, "Put the apple on the table.", OWNED, "w/0")
    assert graph == {("you", "have", "key"), ("apple", "on", "table")}
    contents = [[message["content"] for message in body["messages"]] for body in bodies]
    assert "Put the apple on the table." in contents[0][0] and contents[1][2] == "The key is in the attic."
    assert len(contents[2]) == 4 and "(subject, relation, object)" in contents[2][-1]


def make_rollout(**options):
    return DialogueShaping(ScriptedInterviewer(), OWNED, **options)


def context(task, purpose):
    torch.manual_seed(0)
    policy, engine = WordScorer(buckets=512, embedding=4, hidden=8, value_head=True), LocalEngine()
    engine.sync(policy, 0)
    return Context(task, engine, policy, Sampling(), seed=0, iteration=0, purpose=purpose, group_size=2)


def test_training_episodes_are_shaped_and_evaluations_ask_nobody():
    part = make_rollout()
    episodes = part.collect([(0, TASK[0]), (1, TASK[1])], context(TASK, "train"))
    assert all("graph" in episode.info["scores"] for episode in episodes) and set(part.targets) == {
        TASK[0].key,
        TASK[1].key,
    }
    part = make_rollout()
    episodes = part.collect([(0, TASK[0])], context(TASK, "eval"))
    assert not part.targets and all("graph" not in episode.info["scores"] for episode in episodes)


def test_refusals():
    with pytest.raises(ValueError, match="task 'count' has none"):
        make_rollout().collect([(0, Count()[0])], context(Count(), "train"))
    with pytest.raises(ValueError, match=r"rollout\.form"):
        make_rollout(form="sum")
    with pytest.raises(ValueError, match="coefficient"):
        make_rollout(coefficient=-1.0)
    with pytest.raises(ValueError, match="relations"):
        SentenceTriples(("near",))
    with pytest.raises(ValueError, match="most"):
        ScriptedInterviewer(most=0)
