"""Tool calls as JSON for requests in words."""

from tasks.calls.task import Calls

__all__ = ["Calls"]
