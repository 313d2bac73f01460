"""LeDex: separate rewards for the explanation of a wrong program and for its repair.

LeDex: Training LLMs to Better Self-Debug and Explain Code, 2024, arXiv:2405.18649.

- rewards of the program and of the explanation: `code_reward`, `explanation_reward`
- both at the ends of their texts, for `mmrl.transforms.steps.StepRewards`: `score_repair`; similarity: `similarity`
- chains whose program passes, for SFT: `mmrl.transforms.filter.KeepSuccesses`
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

SEPARATOR = "#"
"""Stands between explanation and program."""


def code_reward(tests: float, code_similarity: float) -> float:
    """Reward of a program R(r) = 5 (S_ut + S_cb) - 5: all unit tests pass (0 or 1), likeness to right programs.

    Source: LeDex, 2024, section 3 (RL), arXiv:2405.18649.
    """
    return 5 * (tests + code_similarity) - 5


def explanation_reward(explanation_similarity: float) -> float:
    """Reward of an explanation R(e) = (50 S_ex - 35) / 3 by its likeness S_ex to a right one.

    5 at likeness 1, 0 at .7, -5 at .4, below which embeddings of explanations seldom are.

    Source: LeDex, 2024, section 3 (RL), arXiv:2405.18649.
    """
    return (50 * explanation_similarity - 35) / 3


def similarity(one: str, other: str) -> float:
    """Likeness of two texts in [0, 1]: twice the number of matched characters by the sum of the lengths."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def score_repair(steps: Sequence[str], exact: float, answer: str, explanation: str) -> list[float]:
    """Return the rewards of the parts of "explanation # program": R(e) of the last but one, R(r) of the last, else 0.

    An answer of one part is a program without an explanation. Likeness to the explanation is counted from .4 to 1,
    where those of the paper's embeddings lie.

    Args:
        steps: the parts, each with the separator that ends it.
        exact: 1 if all unit tests pass.
        answer: a right program.
        explanation: a right explanation, a column of the row.
    """
    *before, program = steps
    rewards = [0.0] * len(before) + [code_reward(float(exact >= 1), similarity(program.strip(), answer))]
    if before:
        text = "".join(before).removesuffix(SEPARATOR).strip()
        rewards[-2] = explanation_reward(0.4 + 0.6 * similarity(text, explanation))
    return rewards
