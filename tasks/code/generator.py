"""Draw small functions: what they shall do, a right program, inputs and outputs, and a broken program to repair."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tasks.code.interpreter import Interpreter
from tasks.code.steps import FIRST_TYPES, STEPS

WORDS = ("noon", "red", "level", "stone", "Anna", "big", "apple", "sky", "otter", "kayak", "tree", "abba", "I", "umbra")


@dataclass(frozen=True)
class Chosen:
    """A step with its number drawn."""

    name: str
    number: int = 0

    @property
    def text(self) -> str:
        return STEPS[self.name].text.replace("{k}", str(self.number))

    @property
    def code(self) -> str:
        return STEPS[self.name].code.replace("{k}", str(self.number))


@dataclass(frozen=True)
class Function:
    """A function that does its steps one after the other."""

    steps: tuple[Chosen, ...]

    @property
    def before(self) -> str:
        return STEPS[self.steps[0].name].before

    def specify(self) -> str:
        """Say what the function shall do, in words."""
        phrases = [step.text for step in self.steps]
        if phrases[-1].startswith("return "):
            phrases, last = phrases[:-1], [phrases[-1]]
        else:
            last = ["return the result"]
        return f"Write a Python function solve(x) for {FIRST_TYPES[self.before]}: {', then '.join([*phrases, *last])}."

    def program(self) -> str:
        """Write a right program."""
        body = "\n".join(step.code for step in self.steps).splitlines()
        return "\n".join(["def solve(x):", *(f"    {line}" for line in body), "    return x"])


def draw_function(rng: np.random.Generator, length: int) -> Function | None:
    """Draw a function of `length` steps whose types fit; None where a step has no successor."""
    kind = list(FIRST_TYPES)[int(rng.integers(len(FIRST_TYPES)))]
    steps: list[Chosen] = []
    for _ in range(length):
        names = [n for n, step in STEPS.items() if step.before == kind and n not in {s.name for s in steps}]
        if not names:
            return None
        steps.append(_choose(rng, names[int(rng.integers(len(names)))]))
        kind = STEPS[steps[-1].name].after
        if STEPS[steps[-1].name].text.startswith("return ") and len(steps) < length:
            return None
    return Function(tuple(steps))


def draw_input(rng: np.random.Generator, kind: str) -> Any:
    """Draw an input: a list of up to eight integers, a text of up to four words, or a number from 0 to 40."""
    if kind == "list":
        return [int(v) for v in rng.integers(-5, 13, size=int(rng.integers(0, 9)))]
    if kind == "text":
        return " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=int(rng.integers(1, 5))))
    return int(rng.integers(0, 41))


def break_program(rng: np.random.Generator, function: Function) -> str:
    """Change one step of a right program: another step of the same types, another number, a line less, or a slip."""
    steps, at = list(function.steps), int(rng.integers(len(function.steps)))
    now = STEPS[steps[at].name]
    others = [n for n, s in STEPS.items() if (s.before, s.after) == (now.before, now.after) and n != steps[at].name]
    kind = int(rng.integers(4))
    if kind == 0 and others:
        steps[at] = _choose(rng, others[int(rng.integers(len(others)))])
        return Function(tuple(steps)).program()
    if kind == 1 and len(now.numbers) > 1:
        steps[at] = Chosen(steps[at].name, int(rng.choice([k for k in now.numbers if k != steps[at].number])))
        return Function(tuple(steps)).program()
    lines = function.program().splitlines()
    if kind == 2 and len(steps) > 1:
        del steps[at]
        return Function(tuple(steps)).program()
    slips = [
        [lines[0].removesuffix(":"), *lines[1:]],
        [*lines[:-1], "    return y"],
        lines[:-1],
        [lines[0].replace("(x)", "(z)"), *lines[1:]],
    ]
    return "\n".join(slips[int(rng.integers(len(slips)))])


@lru_cache(maxsize=4096)
def load_program(program: str) -> Callable[[Any], Any]:
    """The function of a program that this module wrote; programs of policies run in the sandbox alone."""
    names: dict[str, Any] = {}
    exec(program, names)
    return names["solve"]


def run_trusted(program: str, inputs: list[Any]) -> list[Any]:
    """The outputs of a program that this module wrote; the name of the exception where it raises one."""
    outputs = []
    try:
        solve = load_program(program)
    except SyntaxError:
        return ["SyntaxError"] * len(inputs)
    for value in inputs:
        try:
            outputs.append(solve(copy.deepcopy(value)))
        except Exception as error:
            outputs.append(error)
    return outputs


@lru_cache(maxsize=4096)
def count_operations(program: str, inputs: tuple[str, ...]) -> int:
    """Count the operations of a program that this module wrote, over inputs as JSON, as the sandbox counts them."""
    counter = Interpreter(10**9)
    counter.run(ast.parse(program), "solve", [([json.loads(one)], {}) for one in inputs])
    return counter.operations


def _choose(rng: np.random.Generator, name: str) -> Chosen:
    numbers = STEPS[name].numbers
    return Chosen(name, int(numbers[int(rng.integers(len(numbers)))]) if numbers else 0)
