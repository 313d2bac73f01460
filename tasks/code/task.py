"""Write or repair a small Python function; hidden tests run it in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from tasks.checks import check_range
from tasks.code.driver import encode
from tasks.code.generator import Function, break_program, count_operations, draw_function, draw_input, run_trusted
from tasks.code.judged import JudgedPrograms
from tasks.code.runner import Outcome, run_candidates
from tasks.generated import GeneratedTask, ask_user, to_tuples

FUNCTION = "solve"


@dataclass(frozen=True)
class Problem:
    """A function, inputs as JSON (those that the prompt shows first), and a broken program or ""."""

    function: Function
    inputs: tuple[str, ...]
    broken: str = ""


@dataclass(frozen=True)
class Code(JudgedPrograms, GeneratedTask):
    """Small functions to write in Python, judged by hidden tests; a function of the held-out split is never trained on.

    Every program runs in a process of its own that holds inputs alone. Results are compared outside of it, so a program
    cannot change the tests, the comparison or the verdict of another program.

    Args:
        steps: fewest and most steps that a function has.
        examples: inputs that the prompt shows with their outputs.
        tests: hidden inputs.
        repair: the prompt holds a program with an error, to be repaired.
        unsafe_sandbox: run programs on a machine that cannot confine them (see `mmrl.tools.sandbox.Sandbox`).
    """

    steps: Sequence[int] = (1, 3)
    examples: int = 2
    tests: int = 8
    repair: bool = False
    unsafe_sandbox: bool = False

    name = "code"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "steps")
        check_range(self.name, "steps", self.steps, 1, 6)
        check_interval(f"task {self.name!r}:", "[0, 20]", examples=self.examples)
        check_interval(f"task {self.name!r}:", "[2, 100]", tests=self.tests)

    def draw(self, rng: np.random.Generator) -> Problem | None:
        function = draw_function(rng, int(rng.integers(self.steps[0], self.steps[1] + 1)))
        if function is None:
            return None
        inputs = [draw_input(rng, function.before) for _ in range(self.examples + self.tests)]
        right = [json.dumps(encode(output)) for output in run_trusted(function.program(), inputs)]
        hidden = right[self.examples :]
        # one constant must not pass half of the tests
        if max(map(hidden.count, hidden)) > max(1, len(hidden) // 2) or max(map(len, right)) > 2000:
            return None
        broken = break_program(rng, function) if self.repair else ""
        if broken:
            outputs = run_trusted(broken, inputs)[self.examples :]
            coded = ["" if isinstance(o, Exception) else json.dumps(encode(o)) for o in outputs]
            if coded == hidden:
                return None  # the change did no harm
        return Problem(function, tuple(map(json.dumps, inputs)), broken)

    def split_key(self, problem: Problem) -> str:
        return problem.function.program()

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        program = problem.function.program()
        inputs = [json.loads(value) for value in problem.inputs]
        outputs = run_trusted(program, inputs)
        lines = [problem.function.specify()]
        lines += [f"{FUNCTION}({value!r}) == {right!r}" for value, right in zip(inputs[: self.examples], outputs)]
        if problem.broken:
            lines += ["This program has an error. Write the whole program without it.", problem.broken]
        hidden = slice(self.examples, None)
        tests = {
            "calls": [([encode(value)], {}) for value in inputs[hidden]],
            "right": list(map(encode, outputs[hidden])),
            "inputs": problem.inputs[hidden],
        }
        return Prompt(key, ask_user("\n".join(lines)), answer=program, info=tests)

    def score_names(self, prompt: Prompt) -> tuple[str, ...]:
        return (*self.score_format(None), "exact", "tests", "parses", "runs", "speed")

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: all hidden tests pass; tests: share that passes; parses: it is a program with the function; runs: no
        call failed; speed: the operations of the expert's program as a share of its own, at most 1, if it is exact and
        can be counted (README).
        """
        return self.judge_all([answer], [prompt])[0][0]

    def judge_all(
        self, answers: Sequence[str], prompts: Sequence[Prompt]
    ) -> list[tuple[dict[str, float], dict[str, Any]]]:
        jobs = [(answer, FUNCTION, prompt.info["calls"]) for answer, prompt in zip(answers, prompts)]
        outcomes = run_candidates(jobs, count=True, unsafe=self.unsafe_sandbox)
        return [judge(*each) for each in zip(prompts, outcomes)]

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).function.program())

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        function = None
        while function is None:
            function = draw_function(rng, int(rng.integers(self.steps[0], self.steps[1] + 1)))
        return self.write_answer(function.program())


def judge(prompt: Prompt, outcome: Outcome) -> tuple[dict[str, float], dict[str, Any]]:
    """Compare the results of a program with the right ones."""
    right = prompt.info["right"]
    passed = count_passed(outcome.results, right)
    exact = float(passed == len(right) and outcome.word == "ran")
    info = {
        "outcome": outcome.word if outcome.word != "ran" else ("passed" if exact else "failed"),
        "reason": outcome.reason,
        "error_line": outcome.line,
        "executed_lines": outcome.lines,
        "operations": outcome.operations,
        "uncounted": outcome.uncounted,
    }
    # the interpreter, which cannot be cheated, must have returned the right results too
    is_counted = exact and [result[1] for result in outcome.counted] == list(right)
    speed = count_operations(prompt.answer, prompt.info["inputs"]) / outcome.operations if is_counted else 0.0
    scores = {
        "exact": exact,
        "tests": passed / len(right),
        "parses": float(outcome.word not in ("syntax_error", "no_function")),
        "runs": float(outcome.word == "ran"),
        "speed": min(1.0, speed),
    }
    return scores, info


def count_passed(results: Sequence[Any], right: Sequence[Any]) -> int:
    """How many results are the right values, with the right types."""
    return sum(result[0] == "returned" and result[1] == value for result, value in zip(results, right))
