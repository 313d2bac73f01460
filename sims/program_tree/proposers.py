"""Who proposes the children of a program: rewriting rules with planted errors, or a language model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.tools.programs.writers import ChatWriter
from sims.program_tree.expressions import mutate, read, rewrite, write


class Proposer(Protocol):
    """Proposes programs that are one small edit away."""

    def propose(self, program: str, target: str, count: int, rng: np.random.Generator) -> list[str]:
        """At most `count` programs, which may be wrong; none where the program leads nowhere."""


class RuleProposer:
    """Draws rewritten expressions; a share of the proposals is an edit that may change what is computed.

    Args:
        error: share of the proposals that are such edits.
    """

    def __init__(self, error: float = 0.2):
        check_fraction("RuleProposer", error=error)
        self.error = error

    def propose(self, program: str, target: str, count: int, rng: np.random.Generator) -> list[str]:
        tree = read(program)
        right = [] if tree is None else rewrite(tree)
        selected = [right[int(i)] for i in rng.permutation(len(right))[:count]]
        return [write(mutate(each, rng) if rng.random() < self.error else each) for each in selected]


class TableProposer:
    """The children of each program as a table says: for tests and worked examples.

    Args:
        children: programs by their parent.
    """

    def __init__(self, children: Mapping[str, Sequence[str]]):
        self.children = {program: list(proposed) for program, proposed in children.items()}

    def propose(self, program: str, target: str, count: int, rng: np.random.Generator) -> list[str]:
        return self.children.get(program, [])[:count]


class ModelProposer:
    """A language model behind OpenAI's interface, which is asked for edits that keep what is computed.

    Args:
        writer: the connection to the model.
    """

    def __init__(self, writer: ChatWriter):
        self.writer = writer

    def propose(self, program: str, target: str, count: int, rng: np.random.Generator) -> list[str]:
        question = (
            f"Program: {program}\nGoal: {target}\nRewrite the program by one small step that does not change its value "
            f"for any a, b and c and brings it nearer to the goal. Write {count} different results, a line each, and "
            "nothing else."
        )
        answer = self.writer.write([{"role": "user", "content": question}], int(rng.integers(2**31)))
        lines = [re.sub(r"^\s*(?:\d+[.)]|[-*])\s*", "", line).strip(" `") for line in answer.splitlines()]
        return [line for line in lines if line][:count]


def build_proposer(options: Any) -> Proposer:
    """The proposer of a simulator's arguments: {error: 0.2}, {children: {...}} or {url: ..., model: ...}."""
    if not isinstance(options, Mapping):
        return options
    if "url" in options:
        return ModelProposer(ChatWriter(**options))
    return TableProposer(**options) if "children" in options else RuleProposer(**options)
