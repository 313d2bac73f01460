"""Rows of HumanEval: complete a Python function; the row's own test judges it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mmrl.core.types import Episode, Prompt
from mmrl.rewards.extract import CodeBlock
from tasks.code.judged import JudgedPrograms
from tasks.code.runner import Outcome, run_candidates, run_driver
from tasks.dataset.source import Record
from tasks.generated import ask_user
from tasks.rows import RowsTask, need_text


@dataclass(frozen=True)
class Row:
    """Columns of a row."""

    prompt: str
    test: str
    entry_point: str
    solution: str
    place: str

    def join(self, answer: str) -> str:
        """The program of an answer: the prompt and its continuation, or the function written anew below what stands
        before it in the prompt.

        An extractor removes the white space at both ends of an answer. A continuation without any at its start gets
        that of the canonical solution, which continues the same prompt.
        """
        start = f"def {self.entry_point}("
        if start in answer:
            return self.prompt[: self.prompt.rfind(start)] + "\n" + answer
        if answer == answer.lstrip():
            answer = self.solution[: len(self.solution) - len(self.solution.lstrip())] + answer
        return self.prompt + answer


_OTHER_PART = re.compile(r"\n(?=class |def |#|if |print)")


@dataclass(frozen=True)
class HumanEval(JudgedPrograms, RowsTask):
    """Functions to complete, from rows with prompt, test, entry_point and canonical_solution.

    A test and a candidate are never in one process: the calls of the test are recorded with the canonical solution, the
    candidate is called on those inputs, and the test is run on what it returned. So a candidate cannot change the test.
    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374.

    Without `extract` the answer is the first code block, as chat models write it, and otherwise the whole completion,
    which goes on from the prompt. One that was cut off ends before the first line of another part of a program: section
    3.2 lists the sequences that end a sample.

    Args:
        question: the user's turn; {} stands for the row's prompt.
        unsafe_sandbox: run programs on a machine that cannot confine them (see `mmrl.tools.sandbox.Sandbox`).
    """

    question: str = "{}"
    unsafe_sandbox: bool = False

    name = "humaneval"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.question.count("{}") != 1:
            raise ValueError(f"task {self.name!r}: question must hold {{}} once, got {self.question!r}")

    def split_key(self, record: Record) -> str:
        return str(record.get("prompt"))

    def write_prompt(self, record: Record, place: str, key: str) -> Prompt:
        columns = ("prompt", "test", "entry_point", "canonical_solution")
        row = Row(*(need_text(record, name, place=place) for name in columns), place=place)
        return Prompt(
            key, ask_user(self.question.replace("{}", row.prompt)), answer=row.solution, info={"row": row}, place=place
        )

    def score_names(self, prompt: Prompt) -> tuple[str, ...]:
        return (*self.score_format(None), "exact", "tests", "parses", "runs")

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the test passes; tests: share of its assertions that hold; parses: it is a program with the function;
        runs: no call failed but where the test expects it.
        """
        return self.judge_all([answer], [prompt])[0][0]

    def judge_all(
        self, answers: Sequence[str], prompts: Sequence[Prompt]
    ) -> list[tuple[dict[str, float], dict[str, Any]]]:
        rows = [prompt.info["row"] for prompt in prompts]
        tests = [record_calls(row, self.unsafe_sandbox) for row in rows]
        jobs = [(row.join(answer), row.entry_point, calls) for row, answer, (calls, _) in zip(rows, answers, tests)]
        outcomes = run_candidates(jobs, count=False, unsafe=self.unsafe_sandbox)
        tested = replay_tests(rows, [calls for calls, _ in tests], outcomes, self.unsafe_sandbox)
        return [
            judge(len(calls), assertions, outcome, test)
            for (calls, assertions), outcome, test in zip(tests, outcomes, tested)
        ]

    def read_answer(self, episode: Episode) -> str | None:
        answer = super().read_answer(episode)
        if answer is None or self.extract is not None:
            return answer
        block = CodeBlock().find(answer)
        if block is not None:
            return block
        return _OTHER_PART.split(answer)[0] if episode.ended == "length" else answer

    def demonstrate(self, index: int) -> str:
        row = self[index].info["row"]
        return row.solution if self.extractor is None else self.write_answer(row.prompt + row.solution)


def judge(calls: int, wanted: int, outcome: Outcome, test: list[Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Compare the assertions that held with those that hold for the canonical solution."""
    passes, reached, error = test
    # a test may expect that a call raises an exception
    complete = outcome.word in ("ran", "raised") and len(outcome.results) == calls
    exact = complete and not error and passes == reached == wanted
    scores = {
        "exact": float(exact),
        "tests": min(1.0, passes / max(wanted, 1)),
        "parses": float(outcome.word not in ("syntax_error", "no_function")),
        "runs": float(exact or outcome.word == "ran"),
    }
    word = "passed" if exact else ("failed" if outcome.word == "ran" else outcome.word)
    return scores, {"outcome": word, "reason": outcome.reason, "error_line": outcome.line}


@lru_cache(maxsize=4096)
def record_calls(row: Row, unsafe: bool) -> tuple[list[Any], int]:
    """Record the calls of a row's test with its own solution, and count its assertions.

    Raises:
        ValueError: the solution does not pass the test, or the test calls it with values that are no plain data, or the
            solution does not pass when it is scored like a candidate, by what it returned alone.
    """
    job = {
        "program": row.prompt + row.solution,
        "name": row.entry_point,
        "context": row.prompt + row.solution,
        "test": row.test,
    }
    ran = run_driver("record_calls", [job], unsafe)[0]
    if ran.outcome != "ok":
        raise ValueError(
            f"{row.place}: the test of {row.entry_point!r} cannot be recorded ({ran.outcome} {ran.reason})"
        )
    calls, (passes, reached, error) = json.loads(ran.output)
    if error or passes < reached or not calls:
        raise ValueError(
            f"{row.place}: the canonical solution of {row.entry_point!r} does not pass its own test "
            f"({passes} of {reached} assertions {error}); correct the row or leave it out"
        )
    check_replay(row, calls, reached, unsafe)
    return calls, reached


def check_replay(row: Row, calls: list[Any], wanted: int, unsafe: bool) -> None:
    """Refuse with a ValueError a row whose solution does not pass its own test when it is scored like a candidate: the
    test looks at more than what the calls return, such as an argument that they change."""
    program = row.prompt + row.solution
    outcomes = run_candidates([(program, row.entry_point, calls)], count=False, unsafe=unsafe)
    (test,) = replay_tests([row], [calls], outcomes, unsafe)
    scores, info = judge(len(calls), wanted, outcomes[0], test)
    if not scores["exact"]:
        passes, reached, error = test
        raise ValueError(
            f"{row.place}: the canonical solution of {row.entry_point!r} does not pass its own test on what it returned"
            f" ({info['outcome']} {info['reason']}, {passes} of {reached} assertions {error}); the test may look at an "
            "argument that the function changes, which is not replayed; correct the row or leave it out"
        )


def replay_tests(
    rows: Sequence[Row], calls: Sequence[list[Any]], outcomes: Sequence[Outcome], unsafe: bool
) -> list[list[Any]]:
    """Run each row's test on the results of a candidate: assertions that held, those that were reached, the error.

    No program of a candidate is in these processes, so one of them runs the tests of several candidates.
    """
    jobs = [
        {"context": row.prompt + row.solution, "test": row.test, "calls": row_calls, "results": outcome.results}
        for row, row_calls, outcome in zip(rows, calls, outcomes)
    ]
    chunks = [jobs[i : i + 16] for i in range(0, len(jobs), 16)]
    tested: list[list[Any]] = []
    for chunk, ran in zip(chunks, run_driver("replay_results", chunks, unsafe)):
        if ran.outcome != "ok":
            alone = run_driver("replay_results", [[job] for job in chunk], unsafe)
            tested += [json.loads(one.output)[0] if one.outcome == "ok" else [0, 0, one.outcome] for one in alone]
        else:
            tested += json.loads(ran.output)
    return tested
