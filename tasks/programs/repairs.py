"""Repairs of circuits: explain what is wrong with an expression, then write the right one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.generated import ask_user
from tasks.programs.circuits import Circuits, draw_expression, evaluate

_SWAPS = {**dict.fromkeys("&|^", "&|^"), **dict.fromkeys("abcde", "abcde")}


@dataclass(frozen=True, kw_only=True)
class Repairs(Circuits):
    """A truth table and an expression with an error: the answer is an explanation, "#" and the right expression.

    "01101001 (a^b)&c:00010100=" shows the table that is wanted, the expression and its table. The explanation lists the
    outputs that are wrong as 1s: "01111101#(a^b)^c". The error is one operator or one input of the right expression.

    Args: as of Circuits.
    """

    name = "repairs"

    def draw(self, rng: np.random.Generator) -> tuple[str, str] | None:  # type: ignore[override]
        expression = super().draw(rng)
        if expression is None:
            return None
        places = [i for i, sign in enumerate(expression) if sign in _SWAPS]
        at = places[int(rng.integers(len(places)))]
        signs = [s for s in _SWAPS[expression[at]] if s != expression[at] and s not in "abcde"[self.inputs :]]
        wrong = expression[:at] + signs[int(rng.integers(len(signs)))] + expression[at + 1 :]
        return None if evaluate(wrong, self.inputs) == evaluate(expression, self.inputs) else (expression, wrong)

    def split_key(self, problem: tuple[str, str]) -> str:  # type: ignore[override]
        return super().split_key(problem[0])

    def write_prompt(self, problem: tuple[str, str], key: str) -> Prompt:  # type: ignore[override]
        table, wrong_table = (str(evaluate(expression, self.inputs)) for expression in problem)
        explanation = "".join(str(int(a != b)) for a, b in zip(table, wrong_table))
        info = {"table": table, "explanation": explanation}
        return Prompt(key, ask_user(f"{table} {problem[1]}:{wrong_table}="), answer=problem[0], info=info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """As of Circuits for the text after the last "#"; explained: the text before is the right explanation."""
        explanation, _, program = final_line(answer).rpartition("#")
        explained = explanation.strip() == prompt.info["explanation"]
        return {**super().verify(program, prompt), "explained": float(explained)}

    def demonstrate(self, index: int) -> str:
        prompt = self[index]
        return self.write_answer(f"{prompt.info['explanation']}#{prompt.answer}")

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        bits = "".join(rng.choice(["0", "1"], 2**self.inputs))
        return self.write_answer(f"{bits}#{draw_expression(rng, self.inputs, 1)}")
