"""BabyAI in words: what is seen, where, and which levels there are."""

import re

import numpy as np
import pytest

pytest.importorskip("minigrid")

from tasks.babyai import BabyAI
from tasks.babyai.task import ACTIONS, describe_offset, describe_view

EMPTY, WALL, DOOR, KEY, BALL = 1, 2, 4, 5, 6
RED, GREEN = 0, 1


def test_objects_are_described_by_their_offset_in_steps():
    image = np.zeros((7, 7, 3), np.uint8)
    image[..., 0] = EMPTY
    image[3, 1] = (BALL, RED, 0)  # five steps ahead of the agent at (3, 6)
    image[1, 4] = (DOOR, GREEN, 1)
    image[5, 6] = (KEY, RED, 0)
    image[2, :, 0] = WALL
    assert describe_view(image) == [
        "a closed green door 2 steps forward and 2 steps left",
        "a red ball 5 steps forward",
        "a red key 2 steps right",
        "a wall 1 step left",
    ]
    assert describe_offset(-1, 0) == "1 step left" and describe_offset(0, 3) == "3 steps forward"


def test_walls_behind_objects_are_not_described():
    image = np.zeros((7, 7, 3), np.uint8)
    image[..., 0] = EMPTY
    image[3, 2] = (WALL, 0, 0)
    assert describe_view(image) == ["a wall 4 steps forward"]
    image[3, 4] = (BALL, GREEN, 0)
    assert describe_view(image) == ["a green ball 2 steps forward"]


def test_an_action_changes_the_view_and_a_wrong_one_does_not():
    task = BabyAI(levels=("GoToLocal",))
    environment = task.make_environment()
    first = environment.reset(task[0])
    assert first.text.startswith("\nMission: go to ") and first.text.endswith("\n>")
    wrong = environment.step("fly")
    assert not wrong.valid and wrong.text == f"\nThere is no such action.{first.text}"
    four = [environment.step("Turn Left") for _ in range(4)]
    assert four[-1].text == first.text and len({step.text for step in four}) == 4
    assert len(ACTIONS) == 6


def test_the_expert_goes_on_after_actions_of_others():
    """The bot of BabyAI raises, or loses its plan, where it is not asked before an action or asked twice."""
    task, rng = BabyAI(), np.random.default_rng(0)
    for index in range(24):
        environment = task.make_environment()
        step, turns = environment.reset(task[index]), 0
        while not step.done and turns < task.max_turns:
            drawn = rng.random()
            if drawn < 0.3:
                action = environment.random_action(rng)
            else:
                action = "fly" if drawn < 0.4 else environment.expert_action()
                assert environment.expert_action() == environment.expert_action()
            step, turns = environment.step(action), turns + 1
        assert step.scores["exact"] == 1


def test_new_names_change_the_words_and_nothing_else():
    """The oracle is the same episode with the first names, whose words are exchanged here one by one."""
    plain = BabyAI(levels=("PickupLoc", "PutNextLocal"))
    new = BabyAI(levels=plain.levels, names={"red": "crimson", "ball": ["orb", "globe"], "door": "gate"})
    drawn = set()
    for index in range(16):
        one, other = plain.make_environment(), new.make_environment()
        steps = one.reset(plain[index]), other.reset(new[index])
        assert plain[index].info["problem"] == new[index].info["problem"]
        for _ in range(20):
            ball = next((name for name in ("orb", "globe") if name in steps[1].text), "ball")
            drawn.add(ball)
            words = {"red": "crimson", "ball": ball, "door": "gate"}
            expected = "".join(words.get(word, word) for word in re.split(r"(\W)", steps[0].text))
            assert steps[1].text == expected and steps[1].scores == steps[0].scores
            if steps[0].done:
                break
            steps = one.step(one.expert_action()), other.step(other.expert_action())
        assert steps[0].done == steps[1].done
    assert drawn >= {"orb", "globe"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"rouge": "red"}, r"names has \['rouge'\]; it renames red, green"),
        ({"red": "blue"}, "the name 'blue' has to be a word of letters, none of BabyAI's own"),
        ({"red": "mauve", "blue": ["mauve"]}, "the name 'mauve' has to be .* the only one of its kind"),
        ({"red": "x 1"}, "the name 'x 1' has to be a word of letters"),
        ({"red": []}, r"gives no name for \['red'\]"),
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        BabyAI(names=names)


def test_unknown_levels_are_refused():
    with pytest.raises(ValueError, match="there is no level 'GoToMoon'"):
        BabyAI(levels=("GoToMoon",))


def test_layouts_that_are_rejected_are_not_printed(capfd):
    """Of 64 initial states of these levels dozens are drawn again."""
    task = BabyAI(levels=("GoToLocal", "PutNextLocal"), count=64, held_out=1)
    assert len({task[i].info["problem"].state for i in range(64)}) == 64
    assert capfd.readouterr() == ("", "")
