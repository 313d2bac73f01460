"""RewardProgram: a program that rewards decisions of a simulator from its named state, run in the sandbox."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.tools.sandbox.limits import Limits
from mmrl.tools.sandbox.sandbox import Sandbox

State = Mapping[str, Any]
"""A state by name: numbers, lists of numbers, and mappings of these."""
Step = tuple[State, Any, State]
"""A decision: the state before it, its action (a number, or a list of numbers), the state after it."""
MODULES = ("math", "statistics")
"""Modules that a program may import: a reward depends on its arguments alone."""
FUNCTION = "reward"
PARAMETERS = 3
_LIMITS = Limits(seconds=20.0, cpu_seconds=2, output=1 << 20)
_RUNNER = """
import json, sys
source, steps = json.loads({request!r})
rewards, problem = [], None
try:
    code = compile(source, "reward.py", "exec")
    for before, action, after in steps:
        names = {{"__name__": "reward"}}
        exec(code, names)  # of every decision anew: what one writes into names is not there for the next
        value = names["reward"](before, action, after)
        parts = value if isinstance(value, dict) else {{"reward": value}}
        for name, part in parts.items():
            if not isinstance(part, (int, float)):
                raise TypeError(f"the part {{name!r}} is a {{type(part).__name__}} and no number")
        rewards.append({{str(name): float(part) for name, part in parts.items()}})
except BaseException as error:
    line, trace = None, error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "reward.py" else line
        trace = trace.tb_next
    place = f"line {{line}}: " if line else ""
    problem = f"{{place}}{{type(error).__name__}}: {{error}}"[:500]
print()
print(json.dumps([rewards, problem]))
"""


class ProgramError(ValueError):
    """A program that is no reward; the message says where and why, for the person or the model that wrote it."""


class RewardProgram:
    """A Python program with a function `reward(before, action, after)`, which returns a number or its parts by name.

    The reward of a decision is the sum of its parts. Each call runs in a process of its own in the sandbox, and names
    are bound for each decision anew, so a program keeps nothing, and a resumed run goes on as if it had not stopped.

    Args:
        source: of the program. It imports `math` and `statistics` alone.
        name: of the file, for messages.
        unsafe: run it also where this machine lacks a part of the sandbox, see `Sandbox`.

    Raises:
        ProgramError: it cannot be parsed, has no such function, or imports something else.
    """

    def __init__(self, source: str, name: str = "reward.py", unsafe: bool = False):
        self.source, self.name = source, name
        self._check_source()
        self._sandbox = Sandbox(_LIMITS, unsafe)

    def __repr__(self) -> str:
        return f"RewardProgram({self.name})"

    def _check_source(self) -> None:
        try:
            tree = ast.parse(self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
            raise ProgramError(f"{self.name}: {line}{type(error).__name__}: {error.args[0]}") from error
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
        if not functions or len(functions[-1].args.args) != PARAMETERS:
            raise ProgramError(f"{self.name}: it has no function {FUNCTION}(before, action, after)")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                asked = [each.name for each in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            else:
                asked = ["__import__"] if isinstance(node, ast.Name) and node.id == "__import__" else []
            if bad := [name for name in asked if name not in MODULES]:
                raise ProgramError(
                    f"{self.name}: line {node.lineno}: it imports {bad[0]}; a reward may import {' and '.join(MODULES)}"  # type: ignore[attr-defined]
                )

    def parts(self, steps: Sequence[Step]) -> list[dict[str, float]]:
        """The parts of the reward of each decision, by name.

        Raises:
            ProgramError: the program raised, passed its limits, or gave something else than finite numbers.
        """
        if not steps:
            return []
        request = json.dumps([self.source, [list(step) for step in steps]])
        ran = self._sandbox.run(_RUNNER.format(request=request))
        if ran.outcome != "ok":
            limit = f"{_LIMITS.cpu_seconds} s of processor time for {len(steps)} decisions"
            why = {"timed_out": f"it took more than {limit}", "too_long": "it prints too much"}
            raise ProgramError(f"{self.name}: {why.get(ran.outcome, f'it ended with {ran.outcome} {ran.reason}')}")
        try:
            rewards, problem = json.loads(ran.output.rstrip("\n").rpartition("\n")[2])
            if problem is not None:
                raise ProgramError(f"{self.name}: {problem}")
            if len(rewards) != len(steps):
                raise ValueError("rewards of other decisions")
            for name, value in ((name, value) for parts in rewards for name, value in parts.items()):
                if not math.isfinite(value):
                    raise ProgramError(f"{self.name}: the part {name!r} is {value}")
        except ProgramError:
            raise
        except (ValueError, TypeError, AttributeError) as error:  # it ended itself early, or wrote over the result
            raise ProgramError(f"{self.name}: it ended before its reward was read") from error
        return rewards

    def __call__(self, steps: Sequence[Step]) -> list[float]:
        """The reward of each decision; raises as `parts`."""
        return [math.fsum(parts.values()) for parts in self.parts(steps)]
