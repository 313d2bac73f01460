"""A bandit of a hundred arms, for a text model that names one in two digits."""

from tasks.bandit.task import Bandit

__all__ = ["Bandit"]
