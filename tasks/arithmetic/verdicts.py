"""Verdicts on worked sums: is the solution right, yes or no?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.arithmetic.mistakes import inject_mistake
from tasks.arithmetic.task import Arithmetic

WORDS = ("n", "y")
"""Verdicts of a wrong and of a right solution."""


@dataclass(frozen=True)
class SolutionVerdicts(Arithmetic):
    """Problems of `Arithmetic` with a worked solution, of which some are wrong; the answer is y or n.

    A wrong solution has a mistake of 1 to 5 in a random line, and follows from it afterwards. The problem and its
    solution stand in one text, which ends with a question mark.

    Args:
        wrong: share of the solutions with a mistake.
    """

    digits: Sequence[int] = (1, 1, 1, 1)
    steps: bool = True
    wrong: float = 0.5

    name = "solution_verdicts"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", wrong=self.wrong)

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        operands = prompt.info["operands"]
        rng = derive_rng(self.name, self.seed, self.split, index)
        mistaken = bool(rng.random() < self.wrong)
        line = int(rng.integers(len(operands) - 1))
        error = int(rng.integers(1, 6)) * (1 if rng.random() < 0.5 else -1)
        lines = inject_mistake(operands, prompt.info["operation"], line, error * mistaken)
        text = f"{prompt.messages[0]['content']}{chr(10).join(map(str, lines))}?"
        return replace(prompt, messages=({"role": "user", "content": text},), answer=WORDS[not mistaken])

    def demonstrate(self, index: int) -> str:
        return str(self[index].answer)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return {"exact": float(answer == prompt.answer), "format": float(answer in WORDS)}
