"""Speed of verifiers, reward functions and generators: python scripts/bench_rewards.py [NAME ...] [--seconds 2].

One JSON line on stdout for each: name, items_per_second (completions scored), count (completions of a batch); or name
and missing, where a package is not installed. The verifier of a task, task/NAME, scores a batch in which each problem
of 8 has the expert's answer and the answers to seven other problems; problems/NAME generates 64 problems with what they
show. The rate is the median over batches. Sandboxed programs run on all cores, and each batch runs them again;
everything else runs in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mmrl.evaluation.task_baselines import demonstrations
from mmrl.rewards import shaping
from mmrl.rewards.extract import EXTRACTORS
from mmrl.rewards.math_equality import compare_answers
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.code import runner
from tests.laws.task_examples import build_task, names

PROBLEMS = 8
BATCH = 64
TEXT = "<think>\n" + "First add the numbers, then halve the sum. " * 20 + "\n</think>\n<answer>\\boxed{12.5}</answer>"


def build_verifier(name: str) -> tuple[Callable[[], object], int]:
    """Return a function that scores a batch of a task, and the size of the batch."""
    task = build_task(name)
    prompts = [task[index] for index in range(PROBLEMS)]
    answers = demonstrations(task, prompts)
    episodes = [scripted_episode(prompt, answer) for prompt in prompts for answer in answers]

    def score() -> object:
        runner._outcomes.clear()  # otherwise programs that have run before are not run again
        return task.scores(episodes)

    return score, len(episodes)


def build_generator(name: str) -> tuple[Callable[[], object], int]:
    """Return a function that generates a batch of a task's problems with their images, and the size of the batch."""
    task = build_task(name)
    start = 0

    def generate() -> object:
        nonlocal start
        start += BATCH
        return [task[index % len(task)].images for index in range(start, start + BATCH)]

    return generate, BATCH


def build(name: str) -> tuple[Callable[[], object], int]:
    """Return what "task/NAME" or "problems/NAME" times, and the size of its batch."""
    kind, _, task = name.partition("/")
    return build_verifier(task) if kind == "task" else build_generator(task)


def build_functions() -> dict[str, tuple[Callable[[], object], int]]:
    """Functions that score a batch of completions without a task, by name."""

    def repeat(function: Callable[[], object], count: int = 500) -> tuple[Callable[[], object], int]:
        return lambda: [function() for _ in range(count)], count

    pairs = [(f"\\frac{{{n}}}{{{n + 7}}}", f"{n}/{n + 7}") for n in range(1, 101)]
    extractors = {name: kind() for name, kind in EXTRACTORS.items()}
    return {
        **{f"extract/{name}": repeat(lambda e=extractor: e(TEXT)) for name, extractor in extractors.items()},  # type: ignore[misc]
        "tag_format": repeat(lambda: shaping.tag_format(TEXT)),
        "cosine_length": repeat(lambda: shaping.cosine_length(1000, 1.0)),
        "repetition_penalty": repeat(lambda: shaping.repetition_penalty(TEXT)),
        "math_equality": (lambda: compare_answers(pairs), len(pairs)),
    }


def measure(score: Callable[[], object], count: int, seconds: float) -> float:
    """Return the median rate over batches for this long, at least three of them after one to warm up."""
    score()
    rates, end = [], time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        score()
        rates.append(count / (time.perf_counter() - start))
    return statistics.median(rates)


def main() -> None:
    functions = build_functions()
    tasks = [f"{kind}/{name}" for kind in ("task", "problems") for name in names()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join([*functions, *tasks])}; all by default"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="per name")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - {*functions, *tasks}):
        parser.error(f"{unknown[0]!r} is none of {', '.join([*functions, *tasks])}")
    for name in options.names or [*functions, *tasks]:
        try:
            score, count = functions[name] if name in functions else build(name)
            row = {"name": name, "items_per_second": round(measure(score, count, options.seconds), 1), "count": count}
        except ModuleNotFoundError as error:
            row = {"name": name, "missing": str(error)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
