"""Say which measurements of a patient matter, and how high the risk is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Prompt
from tasks.generated import GeneratedTask, ask_user
from tasks.records.expert import COLUMNS, LogisticExpert, draw_patient, fit_expert
from tasks.sets import jaccard

Patient = tuple[tuple[str, ...], tuple[int, ...], int]
"""Columns in the order of the prompt, the digits in the order of COLUMNS, and the label."""


@dataclass(frozen=True)
class Records(GeneratedTask):
    """Risk of a patient from eight measurements in random order, with the measurements that matter.

    The answer is two lines: names of measurements, and a digit d, the risk (d + 1/2) / 10. The reference for the names
    are those with the largest contributions in a logistic regression, fitted to patients of its own. Source: EAG-RL,
    2025, arXiv:2508.13579, whose experts are networks on electronic health records.

    Args:
        informative: columns that the label depends on, from 1 to 8.
        salient: names that the expert gives, from 1 to 8.
        noise: standard deviation of what is added to the sum of effects, which have the size 1.
    """

    informative: int = 4
    salient: int = 2
    noise: float = 0.3

    name = "records"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(
            f"task {self.name!r}:", f"[1, {len(COLUMNS)}]", informative=self.informative, salient=self.salient
        )
        check_at_least(0, f"task {self.name!r}:", noise=self.noise)

    @property
    def expert(self) -> LogisticExpert:
        return fit_expert(self.informative, self.seed, self.noise)

    def draw(self, rng: np.random.Generator) -> Patient:
        values, label = draw_patient(rng, self.informative, self.seed, self.noise)
        order = tuple(COLUMNS[i] for i in rng.permutation(len(COLUMNS)))
        return order, tuple(values.tolist()), label

    def split_key(self, problem: Patient) -> str:
        return str(problem[1])

    def write_prompt(self, problem: Patient, key: str) -> Prompt:
        order, values, label = problem
        text = " ".join(f"{name} {values[COLUMNS.index(name)]}" for name in order)
        salient = self.expert.salient(np.array(values), self.salient)
        return Prompt(key, ask_user(f"{text}?\n"), answer=label, info={"salient": salient})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the risk is on the right side of 1/2; risk: the probability of the label; attention: overlap of the
        names with the expert's, |A and B| / |A or B|; format: names, and a digit in the second line.
        """
        lines = answer.strip().split("\n")
        names = lines[0].split()
        formed = len(lines) == 2 and bool(names) and set(names) <= set(COLUMNS)
        if not formed or len(lines[1]) != 1 or lines[1] not in "0123456789":
            return {"exact": 0.0, "risk": 0.0, "attention": 0.0, "format": 0.0}
        risk = (int(lines[1]) + 0.5) / 10
        right = risk if prompt.answer else 1 - risk
        return {
            "exact": float(right > 0.5),
            "risk": right,
            "attention": jaccard(names, prompt.info["salient"]),
            "format": 1.0,
        }

    def demonstrate(self, index: int) -> str:
        _, values, label = self.problem(index)
        digit = min(int(10 * self.expert.risk(np.array(values))), 9)
        digit = max(digit, 5) if label else min(digit, 4)  # the expert knows the label of a demonstration
        return self.write_answer(f"{' '.join(self.expert.salient(np.array(values), self.salient))}\n{digit}")

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        names = [COLUMNS[i] for i in rng.permutation(len(COLUMNS))[: self.salient]]
        return self.write_answer(f"{' '.join(names)}\n{int(rng.integers(10))}")
