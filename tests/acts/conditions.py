"""Conditions on the numbers of a run: `> 0`, `!= 1` or `changes`."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SIGNS = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
CHANGES = "changes"


@dataclass(frozen=True)
class Condition:
    """What a number of a run has to be in some iteration.

    Args:
        name: a metric that the run logs (rollout/guided_groups); `column/` and a column of the rows; `info/` and a key
            of the episodes' info; or the class of a part: of a transform the episodes or rows that it adds, drops or
            changes, of a rollout the episodes with another prompt than the task's, of a reward the episodes whose
            reward is not the score `exact`, of a curriculum the problems that it repeats before all were selected, or
            of one over levels those that uniform levels would not have.
        sign: one of `SIGNS`, or "changes": the number is not the same in all iterations.
        limit: that it is compared with.
    """

    name: str
    sign: str
    limit: float = 0.0

    @classmethod
    def parse(cls, name: str, text: str) -> Condition:
        """Read a condition such as "> 0", "!= 1" or "changes"."""
        if text == CHANGES:
            return cls(name, CHANGES)
        sign = next((sign for sign in SIGNS if text.startswith(sign)), "")
        try:
            return cls(name, sign, float(text.removeprefix(sign) if sign else "no sign"))
        except ValueError:
            raise ValueError(
                f"acts: {name}: {text!r} is no condition; write changes, or one of {', '.join(SIGNS)} and a number"
            ) from None

    def find(self, iterations: Sequence[Mapping[str, Sequence[float]]]) -> tuple[int, float] | None:
        """The first iteration in which the condition holds, and the number there; None if there is none.

        Args:
            iterations: the numbers of each iteration by name; of a column its lowest and its highest value.
        """
        first: Sequence[float] = ()
        for iteration, numbers in enumerate(iterations):
            values = numbers.get(self.name, ())
            for value in values:
                if self.sign in SIGNS and SIGNS[self.sign](value, self.limit):
                    return iteration, value
            first = first or values
            if self.sign == CHANGES and values and list(values) != list(first):
                return iteration, values[-1]
        return None

    def __str__(self) -> str:
        return "what changes" if self.sign == CHANGES else f"{self.sign} {self.limit:g}"
