"""Short questions such as "27+58=" with one right number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmrl.types import Episode, Prompt, Task
from tasks.arithmetic.data import SYMBOLS, problems, result
from tasks.arithmetic.verify import verify
from tasks.checks import check_fraction, check_index, check_split, reply_text


@dataclass(frozen=True)
class Arithmetic(Task):
    """All problems with operands of at most `digits` digits; held-out pairs of operands are never trained on.

    Args:
        digits: most decimal digits of an operand, 1 to 3; 2 gives 10,000 problems per operation.
        operations: any of "+", "-", "*".
        split: "train" or "held_out".
        held_out_fraction: share of the unordered pairs of operands that is kept for the held-out split.
        seed: of the split; part of the task, not of the run.
    """

    digits: int = 2
    operations: Sequence[str] = ("+",)
    split: str = "train"
    held_out_fraction: float = 0.1
    seed: int = 0

    name = "arithmetic"

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_fraction(self.name, self.held_out_fraction)
        if self.digits not in (1, 2, 3):
            raise ValueError(f"task {self.name!r}: digits must be 1, 2 or 3, got {self.digits}")
        operations = tuple(self.operations)
        if not operations or len(set(operations)) < len(operations) or not set(operations) <= set(SYMBOLS):
            raise ValueError(f"task {self.name!r}: operations must be distinct ones of {SYMBOLS}, got {operations}")
        object.__setattr__(self, "operations", operations)  # configs give lists; a list is not hashable

    @property
    def _problems(self) -> np.ndarray:
        return problems(self.digits, tuple(self.operations), self.held_out_fraction, self.seed, self.split)

    def __len__(self) -> int:
        return len(self._problems)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        position, left, right = map(int, self._problems[index])
        symbol = self.operations[position]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": f"{left}{symbol}{right}="},),
            answer=result(symbol, left, right),
            info={"left": left, "operation": symbol, "right": right},
        )

    def on(self, split: str) -> Arithmetic:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        return verify(reply_text(episode), episode.prompt.answer)

    def demonstrate(self, index: int) -> str:
        return str(self[index].answer)
