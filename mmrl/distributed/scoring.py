"""Scoring passes in which the processes of a sequence group compute the rows of all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mmrl.policies.sequence_group import ALONE, SequenceGroup

_scoring: ContextVar[SequenceGroup] = ContextVar("scoring", default=ALONE)


@contextmanager
def share_scoring(group: SequenceGroup) -> Iterator[None]:
    """Let `evaluate_rows` score the rows of all processes of a group together inside the context.

    All processes of the group must call it equally often.
    """
    token = _scoring.set(group)
    try:
        yield
    finally:
        _scoring.reset(token)


def get_scoring_group(model: Any) -> SequenceGroup:
    """Return the group of `share_scoring` if it can divide the sequences of a model, else this process alone."""
    return _scoring.get() if getattr(model, "divides_sequences", False) else ALONE
