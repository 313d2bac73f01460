"""Base of questions that are answered with coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.scenes.task import SceneTask

Box = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class CoordinateTask(SceneTask):
    """Question whose answer has coordinates: whole numbers, x to the right and y down, from 0 to `units`.

    Args:
        units: number of units across the image; None counts in pixels. True boxes are rounded to them.
    """

    units: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.units is not None and self.units * self.sides[0] < 2:
            raise ValueError(
                f"task {self.name!r}: units={self.units} must make the smallest object at least 2 units wide; give "
                f"{round(2 / self.sides[0] + 0.5)} or more"
            )

    @property
    def limit(self) -> int:
        """The largest coordinate."""
        return self.size if self.units is None else self.units

    def to_units(self, box: Sequence[int]) -> Box:
        """Convert a box from pixels."""
        x1, y1, x2, y2 = (round(edge * self.limit / self.size) for edge in box)
        return x1, y1, x2, y2
