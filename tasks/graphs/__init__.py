"""Arithmetic over dependency graphs, with solutions that are verified step by step."""

from tasks.graphs.exercises import GraphSteps
from tasks.graphs.task import Graphs

__all__ = ["GraphSteps", "Graphs"]
