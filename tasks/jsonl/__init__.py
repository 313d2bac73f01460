"""A user's own questions and answers."""

from tasks.jsonl.task import JsonlTask

__all__ = ["JsonlTask"]
