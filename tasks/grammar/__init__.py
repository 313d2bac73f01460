"""Sentences of a small synthetic language: constraints, refusals, conflicting objectives, planted exploits, cycles."""

from tasks.grammar.cycle import CyclicPreference
from tasks.grammar.task import Grammar

__all__ = ["CyclicPreference", "Grammar"]
