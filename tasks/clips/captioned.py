"""Clips with thoughts: which frames are of one film, an explanation, and the number of the other frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.clips.task import Clips


@dataclass(frozen=True)
class CaptionedClips(Clips):
    """Clips with a frame of another film: "<think>a a b a</think>frame 3<answer>3</answer>".

    The thought has a letter for each frame, that of its film. The explanation repeats the number.

    Args: as of Clips; kinds is anomaly, and answers stand in tags.
    """

    kinds: Sequence[str] = ("anomaly",)
    extract: str | dict[str, Any] | None = "tags"

    def __post_init__(self) -> None:
        super().__post_init__()
        if tuple(self.kinds) != ("anomaly",):
            raise ValueError(f"task {self.name!r}: captioned clips have one other frame; set kinds to [anomaly]")

    def demonstrate(self, index: int) -> str:
        (frame,) = self.problem(index).answer
        films = " ".join("b" if number == frame else "a" for number in range(1, self.frames + 1))
        return f"<think>{films}</think>frame {frame}{self.write_answer(str(frame))}"
