"""House: doors, things, the box and its key, what is admissible, and the character who knows it all."""

import pytest

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.house import House
from tasks.house.layout import HousePlan

DOORS = {"hall": ("attic", "kitchen"), "attic": ("hall",), "kitchen": ("hall",)}
PLACES = {"table": "kitchen", "box": "hall", "apple": "hall", "key": "attic", "book": "hall"}
LOCKED = HousePlan(DOORS, PLACES, "apple", "table", "hall", True)


def start(layout=LOCKED, **options):
    task = House(locked=layout.locked, **options)
    prompt = Prompt("house/train/0", info={"problem": layout})
    environment = task.make_environment()
    return environment, environment.reset(prompt)


def test_what_is_in_a_locked_box_is_not_seen_and_the_text_says_the_rest():
    _, step = start(idle=0)
    assert step.text == (
        "\nYou are in the hall.\nYou see the box and the book.\nThe box is locked.\nYou have nothing.\n"
        "Doors lead to the attic and the kitchen.\n>"
    )
    assert step.admissible_actions == ("go to the attic", "go to the kitchen", "take the book")


def test_everything_in_sight_has_actions_of_no_use():
    """Box, book and the hall, twice: 3 + 2 * 3 actions."""
    environment, step = start(idle=2)
    assert len(step.admissible_actions) == 9 and step.admissible_actions[-1] == "smell the hall"
    after = environment.step("smell the book")
    assert after.text == "\nNothing happens." + step.text and after.valid and after.reward == 0


def test_the_errand_step_by_step_and_subgoals_pay_once():
    environment, _ = start(idle=0, subgoal_reward=0.25)
    actions = ["go to the attic", "take the key", "go to the hall", "open the box with the key", "take the apple",
               "go to the kitchen", "put the key on the table", "put the apple on the table"]  # fmt: skip
    steps = [environment.step(action) for action in actions]
    assert [step.reward for step in steps] == [0, 0, 0, 0.25, 0.25, 0, 0, 1]
    assert [step.scores["exact"] for step in steps] == [0] * 7 + [1] and steps[-1].terminated
    assert "take the apple" in steps[3].admissible_actions and "You see the table and the key on the table." in (
        steps[6].text
    )
    environment, _ = start(HousePlan(DOORS, PLACES, "book", "table", "hall", False), idle=0, subgoal_reward=0.25)
    places = ["take the book", "go to the kitchen", "take the book", "go to the hall", "go to the attic"]
    assert [environment.step(action).reward for action in places] == [0.25, 0, 0, 0, 0]


def test_an_action_that_is_not_admissible_costs_a_turn():
    environment, step = start(idle=0)
    after = environment.step("take the apple")  # it is locked up
    assert not after.valid and after.text == "\nYou cannot do that." + step.text


def test_the_expert_does_every_errand_and_chance_hardly_any():
    for task in (House(), House(locked=True, rooms=6, max_turns=30)):
        for index in range(20):
            environment = task.make_environment()
            step = environment.reset(task[index])
            for action in task.script(index):
                step = environment.step(action)
            assert step.scores["exact"] == 1
    solved, sizes = 0, []
    for index in range(50):
        rng, environment = derive_rng("house", index), House().make_environment()
        step = environment.reset(House()[index])
        for _ in range(20):
            sizes.append(len(step.admissible_actions))
            step = environment.step(environment.random_action(rng))
            solved += step.terminated
            if step.done:
                break
    assert solved <= 3 and 40 < sum(sizes) / len(sizes) < 60


def test_the_housekeeper_answers():
    task, prompt = House(locked=True), Prompt("house/train/0", info={"problem": LOCKED})
    answers = {
        "Where is the key?": "The key is in the attic.",
        "Where are the table and the box?": "The table is in the kitchen. The box is in the hall.",
        "What do I need?": "You need to have the key. You need to have the apple. The apple is in the box.",
        "How does the box open?": "You need to have the key.",
        "What shall I do?": "The apple is to be put on the table.",
        "Where is the dragon?": "I do not know.",
        "Hello!": "I do not know.",
    }
    assert {question: task.ask_character(prompt, question) for question in answers} == answers


def test_houses_that_cannot_be_are_refused():
    for options in ({"rooms": 1}, {"things": 11}, {"items": 5, "things": 4}, {"idle": 9}, {"subgoal_reward": 2.0}):
        with pytest.raises(ValueError, match="task 'house'"):
            House(**options)
