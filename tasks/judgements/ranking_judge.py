"""A scripted judge that ranks sentences by a hidden principle, and errs less the better the examples that it is shown.

It reads questions of ranked examples, as `mmrl.methods.guidance.cycle_align.DemonstratedRanking` writes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from tasks.judgements.principles import grade

PRINCIPLE = "+b"
"""What is better: many b."""
NOISE = 2.0
"""Standard deviation of the grade without an example, in grades of 1 to 5."""
ENOUGH = 3
"""Examples after which, if all are right, nothing is noise."""
_RANKED = re.compile(r"<example\.(\d+)\.rank\.(\d+)-[0-9a-f]+>\n(.*?)\n</", re.DOTALL)
_ASKED = re.compile(r"<answer\.(\d+)-([0-9a-f]+)>\n(.*?)\n</", re.DOTALL)


def rank_sentences(question: str) -> str:
    """Reply to a question with the order of its answers by their grade and noise, the best first."""
    examples: dict[str, list[str]] = {}
    for number, _, text in _RANKED.findall(question):
        examples.setdefault(number, []).append(text)
    noise = scale_noise([measure_example(example) for example in examples.values()])
    answers = _ASKED.findall(question)
    if not answers:
        raise ValueError("the question has no answers between tags <answer.N-MARK>")
    digest = hashlib.blake2b(question.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    draws = np.random.default_rng(int.from_bytes(digest, "big")).normal(size=len(answers))
    values = [grade(PRINCIPLE, text.strip()) + noise * draw for (_, _, text), draw in zip(answers, draws)]
    order = sorted(range(len(answers)), key=lambda n: -values[n])
    return f"ranking-{answers[0][1]}: {' > '.join(answers[n][0] for n in order)}"


def measure_example(answers: Sequence[str]) -> float:
    """Share of the pairs of an example with different grades that are in the right order; 0 without such a pair."""
    grades = [grade(PRINCIPLE, text.strip()) for text in answers]
    leads = [one - other for one, other in combinations(grades, 2) if one != other]
    return sum(lead > 0 for lead in leads) / len(leads) if leads else 0.0


def scale_noise(qualities: Sequence[float]) -> float:
    """Standard deviation of the judge's grades: NOISE * (1 - sum of the qualities / ENOUGH), at least 0."""
    return NOISE * max(1 - sum(qualities) / ENOUGH, 0.0)
