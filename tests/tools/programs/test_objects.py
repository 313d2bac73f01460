"""Relational rewards: bounds, missing objects, what every relation said, and the two questions."""

import pytest

from mmrl.tools.programs.objects import ObjectProgram, find_functions, relation_question, reward_question
from mmrl.tools.programs.program import ProgramError

PADDLE = """
def find(objects, category):
    return next(each for each in objects if each["category"] == category)

def gap(one, other):
    return abs(one["y"] - other["y"])

def reward(objects, prev_objects):
    ball, paddle = find(objects, "ball"), find(objects, "paddle")
    before = gap(find(prev_objects, "ball"), find(prev_objects, "paddle"))
    return (before - gap(ball, paddle)) / 8
"""


def objects(gap, **others):
    """A ball and a paddle, some pixels apart."""
    return {"objects": [{"category": "ball", "y": 20.0 + gap}, {"category": "paddle", "y": 20.0}], **others}


def test_coming_nearer_is_paid_and_a_missing_object_is_worth_nothing():
    """Distances 10 then 6 pay 4 / 8, 6 then 10 the opposite; without a ball `next` raises, and 0 is paid."""
    program = ObjectProgram(PADDLE, unsafe=True)
    alone = {"objects": objects(0)["objects"][1:]}
    steps = [(objects(10), 1, objects(6)), (objects(6), 1, objects(10)), (objects(6), 1, alone)]
    assert program(steps) == [0.5, -0.5, 0.0]


def test_rewards_are_clipped_and_no_number_is_nothing():
    """From 30 to 2 pixels is 28 / 8 = 3.5, clipped at 1; a bound of 2 clips there."""
    far = [(objects(30), 0, objects(2)), (objects(2), 0, objects(30))]
    assert ObjectProgram(PADDLE, unsafe=True)(far) == [1.0, -1.0]
    assert ObjectProgram(PADDLE, bound=2.0, unsafe=True)(far) == [2.0, -2.0]
    for body in ("float('nan')", "None", "'much'", "[1.0]"):
        source = f"def reward(objects, prev_objects):\n    return {body}\n"
        assert ObjectProgram(source, unsafe=True)(far) == [0.0, 0.0]


def test_a_wrong_relation_is_seen_in_what_it_returned():
    """`gap` of 6 and 10, whose mean is 8; a double that always says 0 shows as 0, whatever the reward is."""
    steps = [(objects(10), 1, objects(6)), (objects(6), 1, {"objects": []})]
    good, failed = ObjectProgram(PADDLE, unsafe=True).measure_relations(steps)
    assert good == {"gap": 8.0, "failed": 0.0} and failed["failed"] == 1.0
    wrong = PADDLE.replace('abs(one["y"] - other["y"])', "0 * one['y']")
    assert ObjectProgram(wrong, unsafe=True).measure_relations(steps)[0]["gap"] == 0.0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def reward(before, action, after):\n    return 0\n", "objects, prev_objects"),
        ("def gap(one, other):\n    return 0\n", "no function reward"),
        ("def reward(objects, prev_objects)\n", "line 1: SyntaxError"),
        ("import os\ndef reward(objects, prev_objects):\n    return 0\n", "imports os"),
    ],
)
def test_what_is_no_relational_reward_is_refused(source, message):
    with pytest.raises(ProgramError, match=message):
        ObjectProgram(source, unsafe=True)
    with pytest.raises(ValueError, match="bound"):
        ObjectProgram(PADDLE, bound=0.0)


def test_the_questions_name_categories_and_properties_and_no_score():
    content = relation_question("catch", "catch the ball", objects(1))["content"]
    assert "ball, paddle" in content and "prev_x" in content and "it grows downwards" in content
    bare = relation_question("catch", "catch the ball", objects(1), properties=False)["content"]
    assert "'prev_x'" in bare and "it grows downwards" not in bare
    assert "[-2, 2]" in reward_question(2.0)["content"]


def test_functions_with_their_numbers_of_arguments():
    assert find_functions(PADDLE) == {"find": 2, "gap": 2, "reward": 2}
