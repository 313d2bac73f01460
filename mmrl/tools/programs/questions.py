"""The messages to a writer of reward programs: the simulator, the goal, the results of earlier programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.tools.programs.program import MODULES
from mmrl.tools.programs.traces import Trace

INSTRUCTIONS = """\
You write reward functions for reinforcement learning of a robot or another controlled system.

The simulator:
{description}

The goal: {goal}

Write one Python function

    def reward(before, action, after):
        ...

that is called after every decision with the named state before it, the action, and the named state after it. States are
mappings as listed above; vectors are lists of floats. Return a mapping of the reward's parts by name, whose sum is the
reward: make it dense, with a part for what brings the system nearer to the goal and a larger one for reaching it, and
keep every part finite. You may import {modules} and nothing else, and keep nothing between two calls. Answer with one
block of Python."""
REFUSED = "The program cannot be used: {problem}\nWrite the whole program again."
RESULT = "A policy was trained with this reward. Held-out {metric}: {mean:.3f}."
PARTS = "Sums of its parts over a recorded episode, in four quarters, of the best and of the worst one:\n{table}"
AGAIN = "Write a better reward for the same goal, the whole program."


def describe_state(state: Mapping[str, Any], indent: str = "") -> str:
    """The names of a state, one in a line, with the lengths of its vectors."""
    lines = []
    for name, value in state.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name!r}:", describe_state(value, indent + "  ")]
        else:
            kind = f"list of {len(value)} floats" if isinstance(value, Sequence) else "float"
            lines.append(f"{indent}{name!r}: {kind}")
    return "\n".join(lines)


def first_question(description: str, goal: str) -> dict[str, str]:
    """The message that begins every conversation."""
    return {
        "role": "user",
        "content": INSTRUCTIONS.format(description=description, goal=goal, modules=" and ".join(MODULES)),
    }


def refuse(problem: str) -> dict[str, str]:
    """The message that follows a program that cannot be used."""
    return {"role": "user", "content": REFUSED.format(problem=problem)}


def report(results: Sequence[Mapping[str, Any]], table: str | None, comment: str | None) -> dict[str, str]:
    """The message that follows a program with which policies were trained."""
    parts = [RESULT.format(metric=result["metric"], mean=result["mean"]) for result in results]
    parts += [PARTS.format(table=table)] if table else []
    parts += [comment] if comment else []
    return {"role": "user", "content": "\n".join([*parts, AGAIN])}


def tabulate_parts(rewards: Sequence[Mapping[str, float]]) -> str:
    """Sums of each part over the four quarters of an episode."""
    quarters = [rewards[len(rewards) * n // 4 : len(rewards) * (n + 1) // 4] for n in range(4)]
    names = dict.fromkeys(name for parts in rewards for name in parts)
    rows = {name: [sum(parts.get(name, 0.0) for parts in quarter) for quarter in quarters] for name in names}
    return "\n".join(f"{name}: {', '.join(f'{value:.3f}' for value in row)}" for name, row in rows.items())


def extremes(traces: Sequence[Trace]) -> tuple[Trace, Trace] | None:
    """The episodes of highest and of lowest score; None where all scores are equal."""
    ordered = sorted(traces, key=lambda trace: trace.score)
    return (ordered[-1], ordered[0]) if ordered and ordered[-1].score > ordered[0].score else None
