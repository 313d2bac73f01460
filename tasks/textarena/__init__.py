"""Single-player games of the package textarena."""

from tasks.textarena.task import TextArena

__all__ = ["TextArena"]
