"""TextArena's games: deterministic by their seed, side by side, and saved."""

import random

import pytest

pytest.importorskip("textarena")

from mmrl.core.types import Prompt
from tasks.textarena import TextArena
from tasks.textarena.task import Problem

HANOI = [f"[{a} {b}]" for a, b in ("AC", "AB", "CB", "AC", "BA", "BC", "AC")]


def test_a_game_to_its_end():
    task = TextArena(games=("TowerOfHanoi-v0",))
    environment = task.make_environment()
    first = environment.reset(task[0])
    assert "Tower of Hanoi" in first.text and first.scores == {"exact": 0.0, "value": 0.0}
    wrong = environment.step("[C A]")
    assert not wrong.valid and not wrong.done
    steps = [environment.step(action) for action in HANOI]
    assert all(step.valid and step.reward == 0 for step in steps[:-1])
    assert steps[-1].terminated and steps[-1].reward == 1 and steps[-1].scores["exact"] == 1


def test_games_side_by_side_draw_from_their_own_generators():
    def moves(environments):
        for environment in environments:
            environment.reset(Prompt("textarena/train/0", info={"problem": Problem("2048-v0", 7)}))
        return [[environment.step(a).text for environment in environments] for a in ("[Left]", "[Up]", "[Left]")]

    task = TextArena(games=("2048-v0",))
    random.seed(3)
    before = random.getstate()
    both = moves([task.make_environment(), task.make_environment()])
    assert all(one == other for one, other in both) and [row[0] for row in both] == [
        row[0] for row in moves([task.make_environment()])
    ]
    assert random.getstate() == before


def test_a_saved_state_continues_with_the_same_steps():
    task = TextArena()
    environment, other = task.make_environment(), task.make_environment()
    environment.reset(task[3])
    step = environment.step("[1 2 3 4]")
    assert other.load_state_dict(environment.state_dict()) == step
    assert environment.step("[2 3 4 5]") == other.step("[2 3 4 5]")


def test_unknown_games_are_refused():
    with pytest.raises(ValueError, match="there is no game 'Mastermind'"):
        TextArena(games=("Mastermind",))
