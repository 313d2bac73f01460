"""Nodes of a search tree over steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mmrl.core.types import Episode
from mmrl.rollouts.text.transcript import Transcript


@dataclass(eq=False)
class StepNode:
    """State after a step of an answer; the root is the prompt."""

    script: Transcript  # everything up to and with the step
    parent: StepNode | None = None
    prior: float = 1.0  # geometric mean of the probabilities of the step's tokens
    estimate: float = 0.0  # of the state, from the value head and simulations; of a finished answer its outcome
    outcome: float | None = None  # +1 or -1 of an answer that is finished
    value: float = 0.0  # Q, from the search
    visits: int = 0
    children: list[StepNode] = field(default_factory=list)
    answer: Episode | None = None  # that is finished

    @property
    def depth(self) -> int:
        """Number of steps so far."""
        return 0 if self.parent is None else self.parent.depth + 1

    def path(self) -> list[StepNode]:
        """Nodes from the root to this one."""
        return [*([] if self.parent is None else self.parent.path()), self]

    def nodes(self) -> Iterator[StepNode]:
        """All nodes from here on, parents before children."""
        yield self
        for child in self.children:
            yield from child.nodes()
