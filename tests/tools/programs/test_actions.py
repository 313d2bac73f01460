"""Programs that plan actions: their plans, and how what cannot be used is refused."""

import pickle

import pytest

from mmrl.tools.programs.actions import ActionProgram, plan_together
from mmrl.tools.programs.program import ProgramError

ACTIONS = ["up", "down", "take"]
STATES = [{"x": 2}, {"x": 0}]


def program(body: str, name: str = "macro.py") -> ActionProgram:
    return ActionProgram(f"def act(state):\n    {body}\n", ACTIONS, name)


def test_a_plan_is_the_numbers_of_the_actions():
    walk = program('return ["down"] * state["x"] + ["take"]')
    assert walk.plan(STATES) == [([1, 1, 2], None), ([2], None)] and walk.plan([]) == []
    assert pickle.loads(pickle.dumps(walk)).plan(STATES) == walk.plan(STATES)


def test_a_program_keeps_nothing_between_states():
    source = 'calls = []\ndef act(state):\n    calls.append(1)\n    return ["up"] * len(calls)\n'
    assert ActionProgram(source, ACTIONS).plan(STATES) == [([0], None), ([0], None)]


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("def act(state)\n    return []", "line 1: SyntaxError"),
        ("def act():\n    return []", r"no function act\(state\)"),
        ("", r"no function act\(state\)"),
        ("import os\ndef act(state):\n    return []", "line 1: it imports os"),
        ("def act(state):\n    from random import choice\n    return []", "line 2: it imports random"),
        ("def act(state):\n    return __import__('os')", "line 2: it imports __import__"),
    ],
)
def test_what_is_no_program_is_refused_before_it_runs(source, refused):
    with pytest.raises(ProgramError, match=f"macro.py: .*{refused}"):
        ActionProgram(source, ACTIONS)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('return ["up"] if 1 / state["x"] else []', "line 2: ZeroDivisionError: division by zero"),
        ('return ["fly"] if not state["x"] else ["up"]', "'fly' is no action; there are up, down, take"),
        ('return ["up"] if state["x"] else "up"', "TypeError: act returned a str and no list of actions"),
    ],
)
def test_an_error_concerns_its_state_alone(body, problem):
    assert program(body).plan(STATES) == [([0], None), ([], problem)]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("while True: pass", "it took more than 2 s of processor time for all states"),
        ("print('x' * 2_000_000); return []", "it prints too much"),
    ],
)
def test_a_program_beyond_its_limits_spoils_no_other(body, problem):
    good = program('return ["up"]')
    bad = program(body)
    assert bad.plan(STATES) == [([], problem)] * 2
    assert plan_together([(good, STATES), (bad, STATES[:1])]) == [[([0], None)] * 2, [([], problem)]]
    assert plan_together([(good, []), (good, STATES)]) == [[], [([0], None)] * 2] and plan_together([(bad, [])]) == [[]]
