"""BabyAI's levels in words."""

from tasks.babyai.task import BabyAI

__all__ = ["BabyAI"]
