"""Questions and answers from a user's JSON Lines file."""

from tasks.jsonl.task import JsonlTask

__all__ = ["JsonlTask"]
