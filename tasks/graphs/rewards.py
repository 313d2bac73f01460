"""Scores of the steps of a solution: scorer: {function: tasks.graphs.rewards:score_steps} of a step scorer."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.graphs.data import Graph
from tasks.graphs.verify import judge_steps


def score_steps(steps: Sequence[str], graph: Graph, modulus: int) -> list[float]:
    """1 for each right step, else 0; a last step that is the answer alone is 1 if it is the right number."""
    lines = [step.strip() for step in steps]
    scores = [float(verdict == "right") for verdict in judge_steps(lines, graph, modulus)]
    if lines[-1] == str(graph.values(modulus)[graph.asked]):
        scores[-1] = 1.0
    return scores


def score_length(steps: Sequence[str]) -> list[float]:
    """1 for a step of 7 characters or more, as "b=a+2=5", else its share of them, whatever it says.

    A scorer that can be hacked: it pays for something visible that is not correctness.
    """
    return [min(len(step.strip()) / 7, 1.0) for step in steps]
