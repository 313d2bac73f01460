"""Rewards over objects: relational functions, a bounded reward that calls them, and the two questions for them.

OCALM: Object-Centric Assessment with Language Models, 2024, arXiv:2406.16748.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.core.errors import check_positive
from mmrl.tools.programs.program import FUNCTION, MODULES, ProgramError, RewardProgram, Step

RELATIONS = """\
You will write a reward function for reinforcement learning of a game, in two steps.

The game: {description}
Its state is a list of objects. Each is a mapping with the keys
{properties}
Categories of objects: {categories}.

The goal: {goal}

First step: which relations between objects tell how near the game is to the goal? Write one small Python function for
each, with objects as arguments, that returns a number or a truth value. You may import {modules} and nothing else.
Answer with one block of Python, without a reward."""
REWARD = """\
Second step: write

    def reward(objects, prev_objects):
        ...

that calls your functions, which stand before it. `objects` and `prev_objects` are the lists of objects after and before
a decision. Return one number in [-{bound:g}, {bound:g}], and 0 where an object that it needs is missing or not visible.
It reads no score of the game. Answer with one block of Python, without the relational functions."""
PROPERTIES: Mapping[str, str] = {
    "category": "a name",
    "x": "middle from the left, pixels",
    "y": "middle from the top, pixels; it grows downwards",
    "w": "width, pixels",
    "h": "height, pixels",
    "dx": "x - prev_x",
    "dy": "y - prev_y",
    "prev_x": "x in the state before",
    "prev_y": "y in the state before",
    "visible": "whether it is in the picture; else its place is the last one",
}
"""Keys of an object, with their meanings."""
_BOUNDED = """
_written = reward
def reward(before, action, after):
    try:
        value = float(_written(after["objects"], before["objects"]))
    except Exception:
        value = 0.0
    return max(-{bound!r}, min({bound!r}, value)) if value == value else 0.0
"""
_WATCHED = """
_values = {{}}
def _watch(name, function):
    def watched(*arguments):
        value = function(*arguments)
        if isinstance(value, (bool, int, float)):
            _values.setdefault(name, []).append(float(value))
        return value
    return watched
for _name in {names!r}:
    globals()[_name] = _watch(_name, globals()[_name])
_written = reward
def reward(before, action, after):
    failed = 0.0
    try:
        float(_written(after["objects"], before["objects"]))
    except Exception:
        failed = 1.0
    return {{**{{name: sum(values) / len(values) for name, values in _values.items()}}, "failed": failed}}
"""


class ObjectProgram(RewardProgram):
    """A Python program with relational functions and `reward(objects, prev_objects)`, run as a `RewardProgram`.

    The reward is clipped to [-bound, bound]. It is 0 where the program raises, or gives no number: an object may be
    missing in some states. `measure_relations` reports them. Source: OCALM, 2024, arXiv:2406.16748.

    Args:
        source: of the program.
        name: of the file, for messages.
        unsafe: as of `RewardProgram`.
        bound: largest absolute reward of a decision.

    Raises:
        ProgramError: it cannot be parsed, has no such function, or imports something else.
    """

    def __init__(self, source: str, name: str = "reward.py", unsafe: bool = False, bound: float = 1.0):
        check_positive("task", bound=bound)
        self.written, self.bound, self.unsafe = source, float(bound), unsafe
        functions = find_functions(source, name)
        if functions.get(FUNCTION) != 2:
            raise ProgramError(f"{name}: it has no function {FUNCTION}(objects, prev_objects)")
        self.relations = [each for each in functions if each != FUNCTION]
        super().__init__(source + _BOUNDED.format(bound=self.bound), name, unsafe)

    def measure_relations(self, steps: Sequence[Step]) -> list[dict[str, float]]:
        """For each decision the mean of what every relational function returned, and whether the reward `failed`.

        Functions that the reward did not call, and results that are no numbers, are left out.
        """
        watched = self.written + _WATCHED.format(names=self.relations)
        return RewardProgram(watched, self.name, self.unsafe).parts(steps)


def find_functions(source: str, name: str = "reward.py") -> dict[str, int]:
    """The functions of a program by name, with the numbers of their arguments.

    Raises:
        ProgramError: it cannot be parsed.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
        raise ProgramError(f"{name}: {line}{type(error).__name__}: {error.args[0]}") from error
    return {node.name: len(node.args.args) for node in tree.body if isinstance(node, ast.FunctionDef)}


def relation_question(description: str, goal: str, state: Mapping[str, Any], properties: bool = True) -> dict[str, str]:
    """The first question: the relations that matter.

    Args:
        description: of the game, in words.
        goal: in words.
        state: one of it, for the categories of its objects.
        properties: tell what the keys of an object mean; without it only their names.
    """
    lines = [f"- {key!r}: {meaning}" if properties else f"- {key!r}" for key, meaning in PROPERTIES.items()]
    content = RELATIONS.format(
        description=description,
        properties="\n".join(lines),
        categories=", ".join(dict.fromkeys(str(each["category"]) for each in state["objects"])),
        goal=goal,
        modules=" and ".join(MODULES),
    )
    return {"role": "user", "content": content}


def reward_question(bound: float = 1.0) -> dict[str, str]:
    """The second question: the reward that calls them."""
    return {"role": "user", "content": REWARD.format(bound=bound)}
