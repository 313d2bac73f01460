"""Questions about films of captions."""

from tasks.films.task import Films

__all__ = ["Films"]
