"""Problems about programs: their output, an input for an output, or the program behind input-output pairs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.games import Game, GameProblem, Verdict
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from mmrl.tools.sandbox import ExecutorDown, Limits, Sandbox
from tasks.checks import answer_text, check_index, check_split
from tasks.programs.dsl import LETTERS, execute, trusted_interpreter

SIZE = 3  # digits of a list
PAIRS = 4  # of a problem to find the program; half of them are shown


@cache
def sandbox(unsafe: bool = False) -> Sandbox:
    """Sandbox that all tasks of a process share; one run executes many programs."""
    return Sandbox(Limits(seconds=20.0, cpu_seconds=10, output=1 << 20), unsafe)


@dataclass(frozen=True)
class Programs(Game):
    """Programs of one to `length` letters on lists of three digits; held-out lists are never trained on.

    deduce: "o ri 123" asks for the output. abduce: "i ri 345" asks for an input with that output. induce:
    "p 123 432 456 765" asks for a program that makes the second of each pair of the first, also for hidden pairs.
    "+o ri 123 sd 456" asks for a new problem after known ones, written as "program list" for the first two kinds; for
    the third, "+p ri" asks for lists to show the program on.

    Args:
        length: most letters of a program.
        proposals: share of the training prompts that ask for a problem; only a start needs some.
        count: training problems.
        split: "train" or "held_out".
        held_out_fraction: share of the lists kept for the held-out split.
        seed: of the split and the problems; part of the task, not of the run.
        unsafe_sandbox: run programs on a machine that cannot confine them (see `mmrl.tools.sandbox.Sandbox`).
    """

    length: int = 2
    proposals: float = 0.0
    count: int = 4096
    split: str = "train"
    held_out_fraction: float = 0.3
    seed: int = 0
    unsafe_sandbox: bool = False

    name = "programs"
    kinds = ("deduce", "abduce", "induce")

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        check_interval(f"task {self.name!r}:", "[1, 4]", length=self.length)
        check_interval(f"task {self.name!r}:", "[0, 1)", proposals=self.proposals)
        check_at_least(1, f"task {self.name!r}:", count=self.count)

    def __len__(self) -> int:
        return self.count if self.split == "train" else min(self.count, 300)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        rng = derive_rng("programs", self.split, self.seed, index)
        kind, key = self.kinds[index % 3], f"{self.name}/{self.split}/{index}"
        if rng.random() < self.proposals:
            problems = [self._problem(kind, rng) for _ in range(int(rng.integers(1, 7)))]
            return replace(
                self.ask(kind, problems, key), answer=self._format_proposal(kind, problems, rng), info={"ask": kind}
            )
        problem = self._problem(kind, rng)
        if self.split == "held_out" and kind == "abduce":
            # programs that double or sort map lists of both splits to one output
            while _input_question(problem) in training_outputs(self.on("train")):
                problem = self._problem(kind, rng)
        return replace(self.pose(problem, key), answer=_answer(problem), info={"problem": problem})

    def on(self, split: str) -> Programs:
        return replace(self, split=split, proposals=self.proposals if split == "train" else 0.0)

    def demonstrate(self, index: int) -> str:
        return self[index].answer

    def grade(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        asking = [episode for episode in episodes if "ask" in episode.prompt.info]
        answering = [episode for episode in episodes if "ask" not in episode.prompt.info]
        checked = iter(self.check([(e.prompt.info["ask"], e.prompt, answer_text(e)) for e in asking]))
        judged = iter(self.judge([(e.prompt.info["problem"], answer_text(e)) for e in answering]))
        return [self._grade(e, next(checked if "ask" in e.prompt.info else judged)) for e in episodes]

    def _grade(self, episode: Episode, verdict: Verdict) -> dict[str, float]:
        if verdict.outcome == "executor":
            raise ExecutorDown(f"the answer to {episode.prompt.key!r} could not be run")
        right = float(verdict.outcome in ("right", "valid"))
        return {"exact": right, "earned": right}

    # ---------------------------------------------------------------- the game

    def seeds(self, kind: str) -> list[GameProblem]:
        rng = derive_rng("programs", "seeds", self.seed, kind)
        return list(dict.fromkeys(self._problem(kind, rng, length=1) for _ in range(32)))

    def ask(self, kind: str, known: Sequence[GameProblem], key: str) -> Prompt:
        if kind == "induce":
            return _prompt(f"+p {known[0].body[0]}>", key)
        return _prompt(f"+{kind[0]} " + " ".join(f"{p.body[0]} {p.body[1]}" for p in known) + ">", key)

    def pose(self, problem: GameProblem, key: str) -> Prompt:
        program, *lists = problem.body
        if problem.kind == "deduce":
            return _prompt(f"o {program} {lists[0]}>", key)
        if problem.kind == "abduce":
            return _prompt(f"i {' '.join(_input_question(problem))}>", key)
        return _prompt("p " + " ".join(lists[:PAIRS]) + ">", key)

    def check(self, proposals: Sequence[tuple[str, Prompt, str]]) -> list[Verdict]:
        parsed = [_proposal(kind, prompt, text) for kind, prompt, text in proposals]
        jobs = [(program, value) for one in parsed if one for program, value in one]
        runs = [self._execute(jobs), self._execute(jobs)]
        place, out = 0, []
        for (kind, _, _), one in zip(proposals, parsed):
            if one is None:
                out.append(Verdict("broken"))
                continue
            both = [None if run is None else run[place : place + len(one)] for run in runs]
            place += len(one)
            out.append(_verdict(kind, one, *both))
        return out

    def judge(self, answers: Sequence[tuple[GameProblem, str]]) -> list[Verdict]:
        requests = [_to_run(problem, text.strip()) for problem, text in answers]
        ran = self._execute([job for jobs in requests if jobs for job in jobs])
        place, out = 0, []
        for (problem, text), jobs in zip(answers, requests):
            if jobs is None:
                out.append(Verdict("broken"))
                continue
            outputs = None if ran is None else ran[place : place + len(jobs)]
            place += len(jobs)
            if problem.kind == "deduce":
                right = text.strip() == problem.body[2]
            elif outputs is None:
                out.append(Verdict("executor"))
                continue
            else:
                right = outputs == list(problem.body[2::2])
            out.append(Verdict("right" if right else "wrong"))
        return out

    def _execute(self, jobs: Sequence[tuple[str, str]]) -> list[str | None] | None:
        """Output of each job, or None for all if they could not be run."""
        done = execute(jobs, sandbox(self.unsafe_sandbox))
        return None if isinstance(done, str) else done

    # ---------------------------------------------------------------- problems of its own

    def _problem(self, kind: str, rng: np.random.Generator, length: int | None = None) -> GameProblem:
        pool, inputs = programs(length or self.length), lists(self.held_out_fraction, self.seed, self.split)
        program = pool[int(rng.integers(len(pool)))]
        sample = [inputs[i] for i in rng.integers(len(inputs), size=PAIRS if kind == "induce" else 1)]
        return GameProblem(
            kind, (program, *(word for one in sample for word in (one, str(trusted_interpreter()(program, one)))))
        )

    def _format_proposal(self, kind: str, known: Sequence[GameProblem], rng: np.random.Generator) -> str:
        new = self._problem(kind, rng)
        return " ".join(new.body[1::2]) if kind == "induce" else f"{new.body[0]} {new.body[1]}"


@lru_cache(maxsize=8)
def training_outputs(task: Programs) -> frozenset[tuple[str, str]]:
    """Return program and output of all training problems that ask for an input."""
    solving = replace(task, proposals=0.0)
    indices = range(solving.kinds.index("abduce"), len(solving), len(solving.kinds))
    return frozenset(_input_question(solving[index].info["problem"]) for index in indices)


def _input_question(problem: GameProblem) -> tuple[str, str]:
    """Return what a question for an input shows: the program and the output."""
    return problem.body[0], problem.body[2]


@cache
def programs(length: int) -> list[str]:
    """All programs of one to `length` letters."""
    return ["".join(letters) for n in range(1, length + 1) for letters in itertools.product(LETTERS, repeat=n)]


@lru_cache(maxsize=8)
def lists(held_out_fraction: float, seed: int, split: str) -> list[str]:
    """The lists of one split."""
    order = derive_rng("programs", "split", seed).permutation(10**SIZE)
    cut = round(held_out_fraction * len(order))
    return [f"{number:0{SIZE}}" for number in (order[:cut] if split == "held_out" else order[cut:])]


def _prompt(text: str, key: str) -> Prompt:
    return Prompt(key, ({"role": "user", "content": text},))


def _answer(problem: GameProblem) -> str:
    """A right answer: the output, an input, or the program."""
    return problem.body[{"deduce": 2, "abduce": 1, "induce": 0}[problem.kind]]


def _proposal(kind: str, prompt: Prompt, text: str) -> list[tuple[str, str]] | None:
    """Jobs to run for a proposal; None if it is malformed."""
    if kind == "induce":
        program = str(prompt.messages[0]["content"])[3:-1]
        lists = text.split()
        fits = len(lists) == PAIRS and all(re.fullmatch(rf"[0-9]{{{SIZE}}}", word) for word in lists)
        return [(program, value) for value in lists] if fits else None
    result = re.fullmatch(rf"([a-z]{{1,4}}) ([0-9]{{{SIZE}}})", text.strip())
    return [result.groups()] if result else None  # type: ignore[list-item]


def _verdict(
    kind: str, jobs: list[tuple[str, str]], first: list[str | None] | None, second: list[str | None] | None
) -> Verdict:
    if first is None or second is None:
        return Verdict("executor")
    if None in first:
        return Verdict("not_executable")
    if first != second:
        return Verdict("not_deterministic")
    pairs = [word for (_, value), outputs in zip(jobs, first) for word in (value, str(outputs))]
    return Verdict("valid", GameProblem(kind, (jobs[0][0], *pairs)))


def _to_run(problem: GameProblem, text: str) -> list[tuple[str, str]] | None:
    """Jobs to run to verify an answer; None if it is malformed."""
    program, *lists = problem.body
    if problem.kind == "induce":
        return [(text, value) for value in lists[::2]] if re.fullmatch(r"[a-z]{1,4}", text) else None
    if not re.fullmatch(rf"[0-9]{{{SIZE}}}", text):
        return None
    return [] if problem.kind == "deduce" else [(program, text)]
