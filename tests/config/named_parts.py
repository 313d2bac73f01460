"""A function and a class that stand in a slot of a configuration where they do not belong; both write down a call."""

from typing import Any

CALLS: list[str] = []


def record(*args: Any, **kwargs: Any) -> None:
    """Write down that it was called."""
    CALLS.append("function")


class Recorder:
    """A class of no slot, which takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        CALLS.append("class")
