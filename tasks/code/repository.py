"""Repository: complete a line whose value stands in another file, or above in the same one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.types import Episode, Prompt
from tasks.checks import answer_text
from tasks.generated import SeededTask, ask_user

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class File:
    """Lines above the cursor, the key at the cursor, its value, and the lines of the other files."""

    above: tuple[str, ...]
    key: str
    value: str
    others: tuple[str, ...]
    needed: str  # the line of another file that has the value; "" where it stands above


@dataclass(frozen=True, kw_only=True)
class Repository(SeededTask):
    """Repositories of lines such as "k=37": the prompt is a file up to "k=", the answer the value of that key.

    The value stands in a line of another file or, for a share of the problems, in the file itself. info["candidates"]
    has the lines of the other files. As a task for retrieval, `exact` is 1 for the line that is needed, or for "" where
    none is; as a task for a generator (`shown`), the prompt begins with that line and `exact` is 1 for the value. No
    value of a key is in both splits.

    Args:
        lines: of the other files.
        above: lines of the file above the cursor.
        local_fraction: share of problems whose value stands above the cursor.
        shown: the prompt begins with the line that is needed; an answer is the value.
    """

    lines: int = 12
    above: int = 2
    local_fraction: float = 0.25
    shown: bool = False

    name = "repository"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lines < 2 or self.above < 1 or self.lines + self.above > len(LETTERS):
            raise ValueError(
                f"task {self.name!r}: need lines >= 2, above >= 1 and at most {len(LETTERS)} of both, "
                f"got {self.lines} and {self.above}"
            )
        check_fraction(f"task {self.name!r}:", local_fraction=self.local_fraction)

    def draw(self, rng: np.random.Generator) -> File:
        keys = [LETTERS[i] for i in rng.permutation(len(LETTERS))[: self.lines + self.above]]
        values = [f"{number:02d}" for number in rng.integers(100, size=len(keys)).tolist()]
        lines = tuple(f"{key}={value}" for key, value in zip(keys, values))
        others, above = lines[: self.lines], lines[self.lines :]
        local = bool(rng.random() < self.local_fraction)
        at = self.lines + int(rng.integers(self.above)) if local else int(rng.integers(self.lines))
        return File(above, keys[at], values[at], others, "" if local else lines[at])

    def split_key(self, problem: File) -> str:
        return f"{problem.key}={problem.value}"

    def write_prompt(self, problem: File, key: str) -> Prompt:
        context = [problem.needed] if self.shown and problem.needed else []
        text = "\n".join([*context, *problem.above, f"{problem.key}="])
        info = {"candidates": problem.others, "needed": problem.needed}
        return Prompt(key, ask_user(text), answer=problem.value, info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        """exact: the needed line, or with `shown` the value."""
        right = episode.prompt.answer if self.shown else episode.prompt.info["needed"]
        return {"exact": float(answer_text(episode) == right)}

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return problem.value if self.shown else problem.needed
