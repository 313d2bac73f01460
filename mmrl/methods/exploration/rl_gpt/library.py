"""RL-GPT's programs: which macro-action has which, how they are written, tried and mended.

RL-GPT, 2024, arXiv:2402.19299, section 3.

- errors of a program in recorded states: `ProgramTrial`
- the programs: `MacroLibrary`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from mmrl.methods.exploration.rl_gpt.agents import MacroAgents, RoundFeedback, SubAction, read_split
from mmrl.tools.programs.program import ProgramError
from mmrl.tools.programs.writers import find_program

_COUNTS = ("answers", "mended", "given_up", "failures")


@dataclass(frozen=True)
class ProgramTrial:
    """How a program is tried before it is played.

    Args:
        build: the program of a source and its name.
        states: that it is tried in.
        room: most bytes of it.
    """

    build: Callable[[str, str], Any]
    states: Sequence[Mapping[str, Any]]
    room: int

    def find_problem(self, source: str | None, name: str) -> str | None:
        """What is wrong with a program: it is missing, too long or no Python, or fails in a state; None: nothing.

        Args:
            source: of the program.
            name: for messages.
        """
        if source is None:
            return "the answer has no block of Python"
        if len(source.encode()) > self.room:
            return f"the program has {len(source.encode())} bytes, and there is room for {self.room}"
        try:
            plans = self.build(source, name).plan(self.states)
        except ProgramError as error:
            return str(error)
        return next((problem for _, problem in plans if problem is not None), None)


class MacroLibrary:
    """Programs by the place of their macro-action, the split that they are of, and counts.

    A program keeps its place for as long as it is there, since the policy knows it by that.
    """

    def __init__(self) -> None:
        self.names: list[str] = []  # of the places; "" where one is empty
        self.programs: dict[str, str] = {}
        self.split: list[SubAction] = []
        self.errors: dict[str, list[str]] = {}  # in training, since the program was written
        self.counts = dict.fromkeys(_COUNTS, 0)

    def sources(self, slots: int) -> list[str]:
        """The program of each of the places, "" for none."""
        names = [*self.names, *[""] * (slots - len(self.names))]
        return [self.programs.get(name, "") for name in names]

    def note_errors(self, place: int, errors: Sequence[str]) -> None:
        """Note the errors of the program of a place while the policy played it."""
        self.errors.setdefault(self.names[place], []).extend(errors[:1])
        self.counts["failures"] += len(errors)

    def write(self, agents: MacroAgents, feedback: RoundFeedback, trial: ProgramTrial, attempts: int) -> None:
        """Begin a round: critic, slow agent, then the fast agent for each program that is missing or failed.

        Args:
            agents: are asked.
            feedback: of the round before.
            trial: of each program.
            attempts: answers to a question.
        """
        if feedback.success:
            advice = agents.criticise(self._number(feedback))
            self.counts["answers"] += 1
            feedback = replace(feedback, advice=advice)
        split: list[SubAction] = []
        for _ in range(attempts):
            answer = agents.split_task(self._number(feedback))
            self.counts["answers"] += 1
            split, refused = read_split(answer, feedback.slots)
            feedback = replace(feedback, refused=refused)
            if not refused:
                break
        self.split = split or self.split  # an answer without any usable part changes nothing
        feedback = replace(feedback, refused=(), split=self.split)
        coded = [action for action in self.split if action.codable]
        self._keep({action.name for action in coded})
        for action in coded:
            if action.name not in self.programs or self.errors.get(action.name):
                self._write_one(action, agents, feedback, trial, attempts)

    def _write_one(
        self, action: SubAction, agents: MacroAgents, feedback: RoundFeedback, trial: ProgramTrial, attempts: int
    ) -> None:
        """Have one program written and mended; an old one that failed stays where none better is written."""
        program = self.programs.get(action.name)
        problem = next(iter(self.errors.get(action.name, ())), None)
        for _ in range(attempts):
            mends = problem is not None
            answer = agents.write_program(action, self._number(feedback), program, problem)
            self.counts["answers"] += 1
            program = find_program(answer)
            problem = trial.find_problem(program, f"{action.name}.py")
            if problem is None:
                self._place(action.name, str(program))
                self.counts["mended"] += int(mends)
                return
        self.counts["given_up"] += 1

    def _place(self, name: str, program: str) -> None:
        if name not in self.names:
            place = self.names.index("") if "" in self.names else len(self.names)
            self.names[place : place + 1] = [name]
        self.programs[name] = program
        self.errors.pop(name, None)

    def _keep(self, names: set[str]) -> None:
        """Empty the places of all other programs."""
        self.names = [name if name in names else "" for name in self.names]
        self.programs = {name: program for name, program in self.programs.items() if name in names}
        self.errors = {name: errors for name, errors in self.errors.items() if name in names}

    def _number(self, feedback: RoundFeedback) -> RoundFeedback:
        return replace(feedback, number=self.counts["answers"])

    def metrics(self) -> dict[str, float]:
        """Programs there are; answers of the agents, programs mended and given up, and failures in training."""
        counts = {f"macros/{name}": float(number) for name, number in self.counts.items()}
        return {"macros/programs": float(len(self.programs)), **counts}

    def state_dict(self) -> dict[str, Any]:
        """Programs, split and counts as plain values."""
        split = [list(astuple(action)) for action in self.split]
        plain = {name: getattr(self, name) for name in ("names", "programs", "errors", "counts")}
        return {**plain, "split": split}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("names", "programs", "errors", "counts"):
            setattr(self, name, state[name])
        self.split = [SubAction(*entry) for entry in state["split"]]
