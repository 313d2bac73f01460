"""Prompts that ask for one of three letters, among which preferences are cyclic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt, Task
from tasks.checks import check_index, check_split
from tasks.cyclic.preference import ANSWERS
from tasks.generated import ask_user

_HELD_OUT = 5
"""Every fifth number is held out."""


@dataclass(frozen=True)
class Cyclic(Task):
    """One of three letters; what is better depends on the other answer (`tasks.cyclic.preference.CyclicOracle`).

    Args:
        count: of prompts in both splits together.
        start: probabilities with which the demonstrations choose a, b and c.
        split: "train" or "held_out".
        seed: of the demonstrations.
    """

    count: int = 4000
    start: Sequence[float] = (0.6, 0.2, 0.2)
    split: str = "train"
    seed: int = 0

    name = "cyclic"

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_at_least(_HELD_OUT, f"task {self.name!r}:", count=self.count)
        if len(self.start) != len(ANSWERS):
            raise ValueError(f"task 'cyclic': start must be three probabilities, got {list(self.start)}")
        for number, share in enumerate(self.start):
            check_interval(f"task {self.name!r}:", "[0, 1]", **{f"start[{number}]": share})
        check_interval(f"task {self.name!r}:", "[0.999, 1.001]", **{"sum of start": sum(self.start)})

    @property
    def _numbers(self) -> list[int]:
        held_out = self.split == "held_out"
        return [number for number in range(self.count) if (number % _HELD_OUT == 0) == held_out]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        return Prompt(f"{self.name}/{self.split}/{index}", ask_user(f"Choose for {self._numbers[index]}:"))

    def on(self, split: str) -> Cyclic:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        return {"valid": float(str(episode.output).strip() in ANSWERS)}

    def demonstrate(self, index: int) -> str:
        check_index(self, index)
        rng = derive_rng("cyclic", "demonstration", self.split, index, self.seed)
        return str(rng.choice(ANSWERS, p=[share / sum(self.start) for share in self.start]))
