from tasks.gym_text.task import GymText

__all__ = ["GymText"]
