"""Problems and scorers of the package reasoning-gym."""

from tasks.reasoning_gym.task import ReasoningGym

__all__ = ["ReasoningGym"]
