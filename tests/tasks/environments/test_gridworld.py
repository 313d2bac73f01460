"""Gridworld: moves, keys and doors, shortest paths, views and forms."""

import numpy as np
import pytest

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.gridworld import GridWorld
from tasks.gridworld.layout import Layout, State, draw_rooms
from tasks.gridworld.quest import GridQuest

LOCKED = Layout(("#######", "#.a#..#", "#..A.G#", "#######"), (1, 1))


def reset(task, layout):
    environment = task.make_environment()
    return environment, environment.reset(Prompt("gridworld/train/0", info={"problem": layout}))


def test_a_door_opens_with_its_key_alone():
    state = State((2, 2))
    assert LOCKED.move(state, "R") == state  # the door is locked
    with_key = LOCKED.move(LOCKED.move(State((1, 1)), "R"), "D")
    assert with_key == State((2, 2), frozenset("a")) and LOCKED.move(with_key, "R").cell == (2, 3)
    assert LOCKED.move(State((1, 1)), "U") == State((1, 1))
    assert LOCKED.solve(State((1, 1))) == "RDRRR" and LOCKED.solve(State((2, 2))) == "UDRRR"


def test_the_text_shows_the_grid_the_agent_and_its_keys():
    environment, step = reset(GridWorld(rows=4, doors=1), LOCKED)
    assert step.text == "\n#######\n#@a#..#\n#..A.G#\n#######\n>" and step.reward == 0
    step = environment.step("R")
    assert step.text == "\n#######\n#.@#..#\n#..A.G#\n#######\nkeys: a\n>"
    for action in "DRR":
        step = environment.step(action)
        assert not step.done and step.reward == 0
    step = environment.step("R")
    assert step.terminated and step.reward == 1 and step.scores == {"exact": 1.0, "efficiency": 1.0}


def test_a_detour_and_wrong_actions_cost_moves():
    environment, _ = reset(GridWorld(step_cost=0.1), LOCKED)
    step = environment.step("up")
    assert not step.valid and step.reward == pytest.approx(-0.1)
    for action in "DURDRRR":
        step = environment.step(action)
    assert step.reward == pytest.approx(0.9) and step.scores["efficiency"] == pytest.approx(5 / 8)


def test_keys_and_doors_of_a_quest_pay_once():
    """R takes the key, DR walks through the door and back and through it again, RR reaches the goal."""
    environment, step = reset(GridQuest(subgoal_reward=0.2, step_cost=0.01), LOCKED)
    assert step.reward == 0
    rewards = [environment.step(action).reward for action in "LRDRLRRR"]
    assert rewards == pytest.approx([-0.01, 0.19, -0.01, 0.19, -0.01, -0.01, -0.01, 0.99])
    environment, _ = reset(GridQuest(subgoal_reward=0.2), LOCKED)
    assert sum(environment.step(action).reward for action in "RDRRR") == pytest.approx(1.4)
    assert [environment.step(action).reward for action in "U"] == [0.0]


def test_a_quest_has_the_initial_states_of_its_gridworld():
    sizes = {"rows": 5, "columns": 7, "doors": 1, "max_turns": 12, "seed": 3}
    plain, quest = GridWorld(**sizes), GridQuest(**sizes)
    assert [plain[i].info["problem"] for i in range(5)] == [quest[i].info["problem"] for i in range(5)]


def test_a_partial_view_is_the_square_around_the_agent():
    _, step = reset(GridWorld(view=1), LOCKED)
    assert step.text == "\n###\n#@a\n#..\n>"


def test_words_are_positions_and_walls():
    _, step = reset(GridWorld(form="words"), LOCKED)
    assert step.text == (
        "\nThe goal is at row 2, column 5. You are at row 1, column 1. Walls: up, left. a is right.\n>"
    )
    assert "You are" not in reset(GridWorld(form="words", position=False), LOCKED)[1].text


def test_images_have_one_colour_for_every_kind_of_cell():
    _, step = reset(GridWorld(form="both", size=32), LOCKED)
    (image,) = step.images
    assert image.shape == (32, 32, 3) and "@" in step.text
    colours = {tuple(colour) for colour in image.reshape(-1, 3).tolist()}
    assert len(colours) == len(set("".join(LOCKED.lines)) | {"@"})
    _, step = reset(GridWorld(form="image"), LOCKED)
    assert step.text == "\n>" and np.array_equal(step.images[0], image)


@pytest.mark.parametrize("doors", [0, 1, 2, 3])
def test_every_door_has_to_be_opened(doors):
    for seed in range(20):
        layout = draw_rooms(derive_rng("rooms", seed), 7, 15, 0.0, doors)
        state = State(layout.start)
        for letter in layout.solve(state):
            state = layout.move(state, letter)
        assert len(state.keys) == doors and layout.is_goal(state)


def test_the_initial_states_can_be_solved_in_time():
    task = GridWorld(columns=11, doors=2, max_turns=12)
    lengths = [len(task.problem(i).solve(State(task.problem(i).start))) for i in range(50)]
    assert max(lengths) <= 12


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"layout": "maze", "rows": 8}, "odd number of rows"),
        ({"doors": 4, "columns": 30}, "doors of at most 3"),
        ({"columns": 4, "doors": 1}, "too small"),
        ({"view": 0}, "view >= 1"),
        ({"rows": 40}, "raise size"),
        ({"max_turns": 0}, "max_turns must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(options, why):
    with pytest.raises(ValueError, match=why):
        GridWorld(**options)
