"""Fill in worksheets, rate and criticise filled ones, and revise them by marks or by critiques."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user, to_tuples
from tasks.worksheets.language import (
    FLAW,
    KINDS,
    OPEN,
    PLAIN,
    apply_remarks,
    mark,
    name_flaws,
    rate,
    read_answer,
    read_feedback,
    read_remarks,
    solve,
    write_critique,
    write_lines,
    write_remarks,
)

QUESTIONS = {"solve": "=", "rate": "?", "redo": "!", "criticise": ":", "revise": ";"}
"""What is asked for, by the sign that ends the prompt."""
SMALLEST, LONGEST = 3, 8
"""The least modulus, and the most lines."""


@dataclass(frozen=True)
class Worksheet:
    """Sums, their right results, those of an answer with flaws, and a critique of it that misses and misleads."""

    sums: tuple[str, ...]
    right: str
    results: str
    remarks: tuple[str | None, ...]


@dataclass(frozen=True)
class Worksheets(GeneratedTask):
    """Worksheets of sums of two digits modulo 10, or less, and flawed answers to them, with a question of each.

    solve: the results; rate: a mark of each line of an answer, and its levels; redo: the right results, given an answer
    and its marks; criticise: the flaws of an answer, with suggestions; revise: the answer with every suggestion of a
    critique, which may be wrong. Problems take the questions in turn. The worksheets of a split are in no other split.

    Args:
        questions: of the problems.
        lines: of a worksheet.
        modulus: of the sums, whose digits are below it.
        wrong: share of the lines of answers whose result is wrong.
        missing: share of the lines of answers without a result.
        named: kinds of flaws that the right critique names: w wrong, m missing.
        missed: share of the flaws of an answer that the critique of `revise` does not name.
        misled: share of all lines about which the critique of `revise` suggests a random result.
        flawed: demonstrate `solve` by the answer with flaws, and `criticise` by the critique that misses and misleads.
    """

    questions: Sequence[str] = ("solve",)
    lines: int = 4
    modulus: int = 10
    wrong: float = 0.25
    missing: float = 0.15
    named: str = KINDS
    missed: float = 0.2
    misled: float = 0.15
    flawed: bool = False

    name = "worksheets"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "questions")
        place = f"task {self.name!r}:"
        check_range(self.name, "lines, lines", (self.lines, self.lines), 2, LONGEST)
        check_range(self.name, "modulus, modulus", (self.modulus, self.modulus), SMALLEST, 10)
        check_fraction(place, wrong=self.wrong, missing=self.missing, missed=self.missed, misled=self.misled)
        if self.wrong + self.missing > 1:
            raise ConfigError(
                f"{place} wrong + missing is {self.wrong + self.missing:g}, more than all lines; lower one"
            )
        if not self.questions or not set(self.questions) <= set(QUESTIONS):
            raise ConfigError(f"{place} questions must be one or more of {list(QUESTIONS)}, got {list(self.questions)}")
        if not self.named or not set(self.named) <= set(KINDS):
            raise ConfigError(f"{place} named must be one or more of the kinds {KINDS}, got {self.named!r}")

    def draw(self, rng: np.random.Generator) -> Worksheet:
        sums = tuple("".join(map(str, pair)) for pair in rng.integers(self.modulus, size=(self.lines, 2)))
        right = solve(sums, self.modulus)
        results = "".join(self._draw_result(each, rng) for each in right)
        remarks = tuple(self._draw_remark(one, result, rng) for one, result in zip(right, results))
        return Worksheet(sums, right, results, remarks)

    def _draw_result(self, right: str, rng: np.random.Generator) -> str:
        """The result of a line of an answer."""
        level, shift = rng.random(), int(rng.integers(1, self.modulus))
        if level < self.wrong:
            return str((int(right) + shift) % self.modulus)
        return OPEN if level < self.wrong + self.missing else right

    def _draw_remark(self, right: str, result: str, rng: np.random.Generator) -> str | None:
        """What a critique that misses flaws and misleads says that a line should be; None without a flaw."""
        misled, missed, digit = rng.random() < self.misled, rng.random() < self.missed, int(rng.integers(self.modulus))
        return str(digit) if misled else None if missed or result == right else right

    def split_key(self, problem: Worksheet) -> str:
        return "".join(problem.sums)

    def write_prompt(self, problem: Worksheet, key: str) -> Prompt:
        question = self.questions[int(key.rsplit("/", 1)[1]) % len(self.questions)]
        judged, marks = write_lines(problem.sums, problem.results), mark(problem.right, problem.results)
        texts = {
            "solve": write_lines(problem.sums, OPEN * self.lines),
            "redo": write_lines(problem.sums, problem.results, marks),
            "revise": f"{judged}/{write_remarks(problem.sums, problem.remarks)}",
        }
        info = {"question": question, "sums": problem.sums, "right": problem.right, "results": problem.results}
        text = texts.get(question, judged) + QUESTIONS[question]
        return Prompt(key, ask_user(text), answer=self._solve(problem, question), info=info)

    def _solve(self, problem: Worksheet, question: str) -> str:
        """The right reply."""
        if question == "rate":
            marks = mark(problem.right, problem.results)
            return f"{write_lines(problem.sums, problem.right, marks)}>{''.join(map(str, rate(marks)))}"
        if question == "criticise":
            return write_critique(problem.sums, problem.results, name_flaws(problem.right, problem.results, self.named))
        revised = question == "revise"
        return write_lines(problem.sums, apply_remarks(problem.results, problem.remarks) if revised else problem.right)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the right reply; format: a reply to the question; lines: share of the lines that are right."""
        text = final_line(answer)
        if self.extract is not None and prompt.info["question"] != "rate" and not text.endswith(FLAW):
            text = text.rstrip(PLAIN) + PLAIN  # to an extractor the last sign is the end of a sentence
        lines, right = (_read(each, prompt) for each in (text, str(prompt.answer)))
        if lines is None:
            return dict.fromkeys(("exact", "format", "lines"), 0.0)
        assert right is not None
        share = sum(one == other for one, other in zip(lines, right)) / self.lines
        return {"exact": float(text == prompt.answer), "format": 1.0, "lines": share}

    def demonstrate(self, index: int) -> str:
        prompt, problem = self[index], self.problem(index)
        if self.flawed and prompt.info["question"] == "solve":
            return self.write_answer(write_lines(problem.sums, problem.results))
        if self.flawed and prompt.info["question"] == "criticise":
            return self.write_answer(write_critique(problem.sums, problem.results, self._flaw_remarks(problem)))
        return self.write_answer(str(prompt.answer))

    def _flaw_remarks(self, problem: Worksheet) -> list[str | None]:
        """The remarks that miss and mislead, without those on a line whose kind of flaw is not named."""
        every, some = (name_flaws(problem.right, problem.results, named) for named in (KINDS, self.named))
        return [None if a and not b else remark for a, b, remark in zip(every, some, problem.remarks)]

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        """The reply to another answer, whose lines are those of the prompt."""
        drawn = self.draw(rng)
        other = Worksheet(prompt.info["sums"], drawn.right, drawn.results, drawn.remarks)
        return self.write_answer(self._solve(other, prompt.info["question"]))


def _read(text: str, prompt: Prompt) -> Sequence[object] | None:
    """The lines of a reply; None where it cannot be read."""
    question, sums = prompt.info["question"], prompt.info["sums"]
    if question == "criticise":
        return read_remarks(text, sums)
    if question == "rate":
        feedback = read_feedback(text, sums)
        return feedback[1] if feedback else None
    return read_answer(text, sums)
