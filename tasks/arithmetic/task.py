"""Arithmetic questions such as "27+8=" with one right number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmrl.types import Prompt
from tasks.answers import AnswerTask
from tasks.arithmetic.data import MOST, SYMBOLS, problems, result
from tasks.arithmetic.verify import verify
from tasks.checks import check_fraction, check_index, check_split


@dataclass(frozen=True)
class Arithmetic(AnswerTask):
    """All arithmetic problems of one size; held-out sets of operands are never trained on, in any order.

    Args:
        digits: most decimal digits of each operand, at least two operands; all are joined by the same operation.
        operations: any of "+", "-", "*".
        split: "train" or "held_out".
        held_out_fraction: share of the sets of operands that is kept for the held-out split.
        seed: of the split; part of the task, not of the run.
        steps: demonstrations write what the operands so far make, one line each, before the result.
    """

    digits: Sequence[int] = (2, 1)
    operations: Sequence[str] = ("+",)
    split: str = "train"
    held_out_fraction: float = 0.2
    seed: int = 0
    steps: bool = False

    name = "arithmetic"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_fraction(self.name, self.held_out_fraction)
        digits = tuple(self.digits)
        if len(digits) < 2 or min(digits) < 1 or sum(digits) > MOST:
            raise ValueError(
                f"task {self.name!r}: digits must give at least 1 for each of two or more operands and at most {MOST} "
                f"together, got {list(digits)}"
            )
        object.__setattr__(self, "digits", digits)  # configs give lists; a list is not hashable
        operations = tuple(self.operations)
        if not operations or len(set(operations)) < len(operations) or not set(operations) <= set(SYMBOLS):
            raise ValueError(f"task {self.name!r}: operations must be distinct ones of {SYMBOLS}, got {operations}")
        object.__setattr__(self, "operations", operations)

    @property
    def _problems(self) -> np.ndarray:
        return problems(tuple(self.digits), tuple(self.operations), self.held_out_fraction, self.seed, self.split)

    def __len__(self) -> int:
        return len(self._problems)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        position, *operands = map(int, self._problems[index])
        symbol = self.operations[position]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": symbol.join(map(str, operands)) + "="},),
            answer=result(symbol, operands),
            info={"operation": symbol, "operands": tuple(operands)},
        )

    def on(self, split: str) -> Arithmetic:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def demonstrate(self, index: int) -> str:
        info = self[index].info
        first = 2 if self.steps else len(info["operands"])
        lines = [result(info["operation"], info["operands"][:n]) for n in range(first, len(info["operands"]) + 1)]
        return "\n".join([*map(str, lines[:-1]), self.write_answer(str(lines[-1]))])
