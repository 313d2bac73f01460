"""Score answers with reasoning-gym's scorers, in processes that are killed at a time limit.

Some scorers evaluate an answer as a formula, and others compute with its numbers: "9**9**9**9" and "1e999999999" take
hours and fill the memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from mmrl.rewards.worker import CallTimedOut, WorkerDied, WorkerPool
from tasks.reasoning_gym.generator import build_generator
from tasks.reasoning_gym.strictness import Entry, is_refused, is_wrong_list, limit_score, rewrite_answer

Outcome = Literal["right", "wrong", "refused", "timed_out", "died", "raised"]
"""refused: the answer is no formula and therefore not evaluated. died: the process ended, for example for want of
memory. raised: the scorer raised, or gave no finite number."""
MEMORY_BYTES = 4 * 2**30
"""Address space of a process."""


class Graded(NamedTuple):
    """Score of an answer, from 0 to 1, and how it came about."""

    score: float
    outcome: Outcome


class GeneratorArguments(NamedTuple):
    """Arguments of `build_generator`."""

    dataset: str
    parameters: str
    size: int
    seed: int


def grade(source: GeneratorArguments, answers: Sequence[tuple[str, Entry]], timeout_s: float) -> list[Graded]:
    """Score pairs (answer, problem of the generator), each within the time limit.

    Raises:
        CallRaised: the generator cannot be built.
    """
    out = []
    for result in _pool(timeout_s).call_all((source, *pair) for pair in answers):
        if isinstance(result, CallTimedOut | WorkerDied):
            result = Graded(0.0, "timed_out" if isinstance(result, CallTimedOut) else "died")
        if isinstance(result, Exception):
            raise result
        out.append(result)
    return out


@lru_cache(maxsize=4)
def _pool(timeout_s: float) -> WorkerPool:
    return WorkerPool(load_scorer, processes=max(1, min(8, os.cpu_count() or 1)), timeout_s=timeout_s)


def load_scorer() -> Callable[[GeneratorArguments, str, Entry], Graded]:
    """Load the scorer in a worker process, whose memory is limited."""
    import resource
    import warnings

    import reasoning_gym  # noqa: F401  (outside of the first call's time)

    warnings.simplefilter("ignore")  # of the parsers of an answer
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return score_answer


def score_answer(source: GeneratorArguments, answer: str, entry: Entry) -> Graded:
    """Score one answer; "" stands for none."""
    generator = build_generator(*source)
    if is_refused(source.dataset, answer, entry):
        return Graded(0.0, "refused")
    if is_wrong_list(source.dataset, answer, entry):
        return Graded(0.0, "wrong")
    try:
        score = float(generator.score_answer(rewrite_answer(source.dataset, answer, entry) or None, entry))
        if score >= 1:
            score = min(score, limit_score(source.dataset, answer, entry))
    except Exception:  # the scorers raise all kinds of errors for answers of another form
        return Graded(0.0, "raised")
    if not math.isfinite(score):
        return Graded(0.0, "raised")
    return Graded(score, "right" if score >= 1 else "wrong")
