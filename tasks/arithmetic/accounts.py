"""Sums of numbers that are looked up by names: questions such as "ba+kin=", and the two tools that answer them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from string import ascii_lowercase

from mmrl.core.errors import check_at_least, check_fraction, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from mmrl.tools.base import Tool, ToolError
from tasks.answers import AnswerTask
from tasks.arithmetic.calculator import calculate
from tasks.arithmetic.task import verify
from tasks.checks import check_index, check_split

MOST = 26**2  # names of two letters


@lru_cache(maxsize=8)
def balances(people: int, held_out_fraction: float, seed: int) -> dict[str, dict[str, int]]:
    """Balances from 10 to 99 by name, of the two splits, which have no name in common."""
    rng = derive_rng("accounts", people, seed)
    pool = ["".join(letters) for letters in product(ascii_lowercase, repeat=2)]
    names = [pool[i] for i in rng.permutation(len(pool))[:people]]
    values = {name: int(rng.integers(10, 100)) for name in names}
    cut = round(held_out_fraction * people)
    parts = {"held_out": names[:cut], "train": names[cut:]}
    return {split: {name: values[name] for name in part} for split, part in parts.items()}


@dataclass(frozen=True)
class AccountSums(AnswerTask):
    """Sums of the balances of two people; held-out people do not occur in training.

    No question says what a balance is: it has to be looked up (`Balances`). The script looks up both names, calculates
    and answers what the calculator shows. It makes mistakes that the syntax allows, for a start that knows how tools
    are called but not which calls help: the second name may be the first one again, and the calculation a difference.

    Args:
        people: in both splits, at most 676.
        count: questions of a split.
        slips: probability of each of the two mistakes of the script.
        calculator: whether the script calls the calculator, or adds by itself.
        lookup_call: how the script looks up a name, with {query}.
        sum_call: how it calculates, with {query}.
        split: "train" or "held_out".
        held_out_fraction: share of the people in the held-out split.
        seed: of balances and questions; part of the task, not of the run.
    """

    people: int = 600
    count: int = 4096
    slips: float = 0.5
    calculator: bool = True
    lookup_call: str = "?{query};"
    sum_call: str = "#{query};"
    split: str = "train"
    held_out_fraction: float = 0.3
    seed: int = 0

    name = "account_sums"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_at_least(1, f"task {self.name!r}:", count=self.count)
        check_fraction(f"task {self.name!r}:", slips=self.slips)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        fewest = int(min(self.held_out_fraction, 1 - self.held_out_fraction) * self.people)
        if not (fewest >= 2 and self.people <= MOST):
            raise ValueError(
                f"task {self.name!r}: needs two people or more in each split and at most {MOST} together, got "
                f"people={self.people}"
            )

    @property
    def balances(self) -> dict[str, dict[str, int]]:
        """Balances by name, of both splits."""
        return balances(self.people, self.held_out_fraction, self.seed)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        values = self.balances[self.split]
        rng = derive_rng("accounts", "question", self.split, self.seed, index)
        first, second = (sorted(values)[int(i)] for i in rng.permutation(len(values))[:2])
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": f"{first}+{second}="},),
            answer=values[first] + values[second],
            info={"names": (first, second)},
        )

    def on(self, split: str) -> AccountSums:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def demonstrate(self, index: int) -> str:
        return self.write_answer(str(self[index].answer))

    def script(self, index: int) -> list[str]:
        """The turns of a demonstration with calls, some of them mistaken."""
        first, second = self[index].info["names"]
        values = self.balances[self.split]
        slipped = derive_rng("accounts", "slips", self.split, self.seed, index).random(2) < self.slips
        looked_up = (first, first if slipped[0] else second)
        x, y = (values[name] for name in looked_up)
        calls = [self.lookup_call.format(query=name) for name in looked_up]
        if not self.calculator:
            return [*calls, self.write_answer(str(x + y))]
        expression = f"{x}-{y}" if slipped[1] else f"{x}+{y}"
        answer = self.write_answer(str(calculate(expression)))
        return [*calls, self.sum_call.format(query=expression), answer]


class UnknownName(ToolError):
    """The name of no person."""


class NotAnExpression(ToolError):
    """The calculator cannot read this."""


class Balances(Tool):
    """Returns the balance of a person.

    Args:
        task: whose people are known, of both splits.
    """

    def __init__(self, task: AccountSums):
        if not isinstance(task, AccountSums):
            raise ValueError(f"balances are those of {AccountSums.__name__} alone, not of {type(task).__name__}")
        self.known = {name: value for part in task.balances.values() for name, value in part.items()}

    def run(self, name: str) -> str:  # type: ignore[override]
        """
        Look up a balance.

        Args:
            name: of the person.
        """
        if name not in self.known:
            raise UnknownName(name[:50])
        return str(self.known[name])


class Calculator(Tool):
    """Computes a sum, a difference or a product of two whole numbers."""

    def run(self, expression: str) -> str:  # type: ignore[override]
        """
        Compute.

        Args:
            expression: such as 27+48.
        """
        try:
            return str(calculate(expression))
        except ValueError as error:
            raise NotAnExpression(str(error)) from None
