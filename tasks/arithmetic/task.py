"""Arithmetic questions such as "27+8=" with one right number."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split, final_line

SYMBOLS = ("+", "-", "*")
MOST = 6  # digits of a question, since all its problems are listed


@lru_cache(maxsize=8)
def problems(
    digits: tuple[int, ...], operations: tuple[str, ...], held_out_fraction: float, seed: int, split: str
) -> np.ndarray:
    """Problems in seeded random order, [problems, 1 + operands] int32: index of the operation, then the operands.

    Orders of the same operands are one fact, or nearly, so all of them go to the same split: a multiset of operands
    under one operation is drawn for the held-out split or it is not.
    """
    everything = np.indices([10**d for d in digits], dtype=np.int32).reshape(len(digits), -1).T
    _, fact = np.unique(np.sort(everything, axis=1), axis=0, return_inverse=True)
    fact = fact.reshape(-1)
    parts = []
    for position, symbol in enumerate(operations):
        rng = derive_rng("arithmetic", "split", *digits, symbol, seed)
        facts = rng.permutation(fact.max() + 1)
        num_held_out = np.zeros(len(facts), dtype=bool)
        num_held_out[facts[: round(held_out_fraction * len(facts))]] = True
        rows = everything[num_held_out[fact] == (split == "held_out")]
        parts.append(np.concatenate([np.full((len(rows), 1), position, dtype=np.int32), rows], axis=1))
    problem_rows = np.concatenate(parts)
    order = derive_rng("arithmetic", "order", *digits, *operations, seed, split).permutation(len(problem_rows))
    problem_rows = problem_rows[order]
    problem_rows.flags.writeable = False  # shared by every user of the cache
    return problem_rows


def result(symbol: str, operands: Sequence[int]) -> int:
    """Apply the operation from left to right."""
    return reduce({"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[symbol], operands)


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
        question: the user's turn; {} stands for the problem.
        spaced: write 27 + 8 in place of 27+8, as pretrained language models have mostly read it.
    """

    digits: Sequence[int] = (2, 1)
    operations: Sequence[str] = ("+",)
    split: str = "train"
    held_out_fraction: float = 0.2
    seed: int = 0
    steps: bool = False
    question: str = "{}="
    spaced: bool = False

    name = "arithmetic"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
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
        if self.question.count("{}") != 1:
            raise ValueError(
                f"task {self.name!r}: question must hold {{}} once, where the problem stands, got {self.question!r}"
            )

    @property
    def _problems(self) -> np.ndarray:
        return problems(tuple(self.digits), tuple(self.operations), self.held_out_fraction, self.seed, self.split)

    def __len__(self) -> int:
        return len(self._problems)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        position, *operands = map(int, self._problems[index])
        symbol = self.operations[position]
        problem = (f" {symbol} " if self.spaced else symbol).join(map(str, operands))
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": self.question.replace("{}", problem)},),
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

    def script(self, index: int) -> list[str]:
        """A demonstration that calls `calculator.calculate` as Hermes and Qwen write it, turn by turn; two operands."""
        info = self[index].info
        expression = f" {info['operation']} ".join(map(str, info["operands"]))
        call = {"name": "calculate", "arguments": {"expression": expression}}
        return [f"<tool_call>{json.dumps(call)}</tool_call>", self.demonstrate(index)]


# one way to write each number: ASCII digits, no leading zero, no minus zero
INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def verify(text: str, answer: int) -> dict[str, float]:
    """format: 1 when the final line is one integer and nothing else; exact: 1 when it is also the right one."""
    final = final_line(text)
    well_formed = INTEGER.fullmatch(final) is not None
    # every integer has one accepted spelling, so equal text is equal value, however long a policy rambles in digits
    return {"exact": float(well_formed and final == str(answer)), "format": float(well_formed)}
