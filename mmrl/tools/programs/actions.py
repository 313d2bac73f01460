"""ActionProgram: a program that plans actions from a named state (code as a policy), run in the sandbox."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

from mmrl.tools.programs.objects import find_functions
from mmrl.tools.programs.program import MODULES, ProgramError, State
from mmrl.tools.sandbox.limits import Limits
from mmrl.tools.sandbox.sandbox import Sandbox

FUNCTION = "act"
_LIMITS = Limits(seconds=20.0, cpu_seconds=2, output=1 << 20)
_REASONS = {"timed_out": "it took more than 2 s of processor time for all states", "too_long": "it prints too much"}
_RUNNER = """
import json
plans = []
for source, states in json.loads({request!r}):
    for state in states:
        try:
            names = {{"__name__": "macro"}}
            exec(compile(source, "macro.py", "exec"), names)  # anew: no state sees the names of another
            actions = names["act"](state)
            if not isinstance(actions, (list, tuple)):
                raise TypeError(f"act returned a {{type(actions).__name__}} and no list of actions")
            plans.append([[str(action) for action in actions], None])
        except BaseException as error:
            line, trace = None, error.__traceback__
            while trace is not None:
                line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "macro.py" else line
                trace = trace.tb_next
            place = f"line {{line}}: " if line else ""
            plans.append([[], f"{{place}}{{type(error).__name__}}: {{error}}"[:500]])
print()
print(json.dumps(plans))
"""
Plan = tuple[list[int], str | None]
"""Numbers of the planned actions, and what went wrong; None: nothing. A plan with an error has no action."""


class ActionProgram:
    """A Python program with a function `act(state)`, which returns the names of the actions to take, in their order.

    Each call runs in a process of its own in the sandbox, and names are bound for each state anew, so a plan is a
    function of the state alone.

    Args:
        source: of the program. It imports `math` and `statistics` alone.
        actions: names of the simulator's actions.
        name: of the program, for messages.
        unsafe: run it also where this machine lacks a part of the sandbox, see `Sandbox`.

    Raises:
        ProgramError: it cannot be parsed, has no such function, or imports something else.
    """

    def __init__(self, source: str, actions: Sequence[str], name: str = "macro.py", unsafe: bool = False):
        self.source, self.name = source, name
        self.numbers = {action: number for number, action in enumerate(actions)}
        if find_functions(source, name).get(FUNCTION) != 1:
            raise ProgramError(f"{name}: it has no function {FUNCTION}(state)")
        _check_imports(source, name)
        self.sandbox = Sandbox(_LIMITS, unsafe)

    def __repr__(self) -> str:
        return f"ActionProgram({self.name})"

    def plan(self, states: Sequence[State]) -> list[Plan]:
        """The plan in each state. A program that passes its limits has an error in all these states."""
        return plan_together([(self, states)])[0]

    def number(self, actions: Sequence[str], problem: str | None) -> Plan:
        """The plan of names of actions; an unknown name is an error."""
        if problem is not None:
            return [], str(problem)
        if unknown := [action for action in actions if action not in self.numbers]:
            return [], f"{unknown[0]!r} is no action; there are {', '.join(self.numbers)}"
        return [self.numbers[action] for action in actions], None


def plan_together(requests: Sequence[tuple[ActionProgram, Sequence[State]]]) -> list[list[Plan]]:
    """The plans of several programs, of each in its states, by one process of the sandbox.

    Where that process fails, each program runs in one of its own, so that one does not spoil the plans of another.
    """
    if not any(states for _, states in requests):
        return [[] for _ in requests]
    counts = [len(states) for _, states in requests]
    text = json.dumps([[program.source, [dict(state) for state in states]] for program, states in requests])
    ran = requests[0][0].sandbox.run(_RUNNER.format(request=text))
    try:
        if ran.outcome != "ok":
            raise ValueError(_REASONS.get(ran.outcome, f"it ended with {ran.outcome} {ran.reason}"))
        plans = _read_plans(ran.output, sum(counts))
    except ValueError as error:
        if len(requests) > 1:
            return [program.plan(states) for program, states in requests]
        return [[([], str(error))] * counts[0]]
    rest = iter(plans)
    return [[program.number(*next(rest)) for _ in range(count)] for (program, _), count in zip(requests, counts)]


def _read_plans(output: str, count: int) -> list[tuple[list[str], str | None]]:
    """The plans in the output of a process; raises a ValueError where it ended early or wrote over them."""
    try:
        plans = json.loads(output.rstrip("\n").rpartition("\n")[2])
        if len(plans) == count:
            return [([str(action) for action in actions], problem) for actions, problem in plans]
    except (ValueError, TypeError):
        pass
    raise ValueError("it ended before its plan was read")


def _check_imports(source: str, name: str) -> None:
    """Refuse imports beyond `MODULES`; the program can be parsed."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules, line = [each.name for each in node.names], node.lineno
        elif isinstance(node, ast.ImportFrom):
            modules, line = [str(node.module)], node.lineno
        elif isinstance(node, ast.Name) and node.id == "__import__":
            modules, line = [node.id], node.lineno
        else:
            continue
        if foreign := [module for module in modules if module not in MODULES]:
            raise ProgramError(
                f"{name}: line {line}: it imports {foreign[0]}; a program may import {' and '.join(MODULES)}"
            )
