"""Gymnasium environments with named discrete actions, in text."""

from tasks.gym_text.task import GymText

__all__ = ["GymText"]
