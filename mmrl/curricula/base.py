"""Curriculum: which prompts to sample in an iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from mmrl.types import Context, Episode


class Curriculum(ABC):
    """Picks problems. Every rank calls it with the same arguments and must get the same answer."""

    @abstractmethod
    def select(self, count: int, ctx: Context) -> list[int]:
        """Indices into ctx.task of the prompts of this iteration, over all ranks."""

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Learn from the scored groups of all ranks (light episodes: no turns)."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
