"""Write or repair a small Python function; hidden tests run it in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.rewards.extract import remove_thoughts
from mmrl.types import Episode, Prompt
from tasks.checks import reply_text
from tasks.code.driver import encode
from tasks.code.generator import Function, break_program, count_operations, draw_function, draw_input, run_trusted
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
class Code(GeneratedTask):
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
        if len(self.steps) != 2 or not 1 <= self.steps[0] <= self.steps[1] <= 6:
            raise ValueError(
                f"task {self.name!r}: steps must be the fewest and the most, from 1 to 6, got {self.steps}"
            )
        if not 0 <= self.examples <= 20 or not 2 <= self.tests <= 100:
            raise ValueError(
                f"task {self.name!r}: needs 0 <= examples <= 20 and 2 <= tests <= 100, "
                f"got {self.examples} and {self.tests}"
            )

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
        inputs = [json.loads(given) for given in problem.inputs]
        outputs = run_trusted(program, inputs)
        lines = [problem.function.specify()]
        lines += [f"{FUNCTION}({given!r}) == {right!r}" for given, right in zip(inputs[: self.examples], outputs)]
        if problem.broken:
            lines += ["This program has an error. Write the whole program without it.", problem.broken]
        hidden = slice(self.examples, None)
        tests = {
            "calls": [([encode(given)], {}) for given in inputs[hidden]],
            "right": list(map(encode, outputs[hidden])),
            "inputs": problem.inputs[hidden],
        }
        return Prompt(key, ask_user("\n".join(lines)), answer=program, info=tests)

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """exact: all hidden tests pass; tests: share that passes; parses: it is a program with the function; runs: no
        call failed; speed: the operations of the expert's program as a share of its own, at most 1, if it is exact.
        """
        programs = [self._read(episode) for episode in episodes]
        jobs = [(text or "", FUNCTION, e.prompt.info["calls"]) for text, e in zip(programs, episodes)]
        outcomes = run_candidates(jobs, strict=True, trace=True, unsafe=self.unsafe_sandbox)
        return [self._judge(*each) for each in zip(episodes, outcomes)]

    def _read(self, episode: Episode) -> str | None:
        if self.extractor is None:
            return remove_thoughts(reply_text(episode))
        return self.extractor(reply_text(episode))

    def _judge(self, episode: Episode, outcome: Outcome) -> dict[str, float]:
        right = episode.prompt.info["right"]
        passed = count_passed(outcome.results, right)
        exact = float(passed == len(right) and outcome.word == "ran")
        word = outcome.word if outcome.word != "ran" else ("passed" if exact else "failed")
        episode.info.update(
            outcome=word,
            reason=outcome.reason,
            error_line=outcome.line,
            executed_lines=outcome.lines,
            operations=outcome.operations,
        )
        parses = outcome.word not in ("syntax_error", "forbidden", "no_function")
        operations = count_operations(episode.prompt.answer, episode.prompt.info["inputs"])
        speed = min(1.0, operations / max(outcome.operations, 1)) if exact else 0.0
        return {
            "exact": exact,
            "tests": passed / len(right),
            "parses": float(parses),
            "runs": float(outcome.word == "ran"),
            "speed": speed,
        }

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        raise NotImplementedError("programs are verified many at a time, by `scores`")

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).function.program())

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        drawn = None
        while drawn is None:
            drawn = draw_function(rng, int(rng.integers(self.steps[0], self.steps[1] + 1)))
        return self.write_answer(drawn.program())


def count_passed(results: Sequence[Any], right: Sequence[Any]) -> int:
    """How many results are the right values, with the right types."""
    return sum(result[0] == "returned" and result[1] == wanted for result, wanted in zip(results, right))
