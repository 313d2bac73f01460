"""Feedback on filled worksheets and critiques of them, as models that learned `Worksheets` write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.critiques import CritiqueForm, Feedback, FeedbackForm, Unit
from mmrl.rewards.judges.questions import Question, Reply, Unreadable
from tasks.checks import final_line
from tasks.worksheets.language import (
    ASPECTS,
    FINE,
    KIND_OF_MARK,
    OPEN,
    mark,
    read_answer,
    read_critique,
    read_feedback,
    write_lines,
)
from tasks.worksheets.task import QUESTIONS


@dataclass(frozen=True)
class WorksheetFeedback(FeedbackForm):
    """Asks a model that learned to rate: 347754? is answered 34y75n>122, the marks of the lines and the levels.

    An answer with other lines is shown as the open worksheet, and has the readability 0.
    """

    def ask(self, episode: Episode, answer: str) -> Question:
        sums = _sums(episode.prompt)
        results = read_answer(final_line(answer), sums)
        text = write_lines(sums, results or OPEN * len(sums)) + QUESTIONS["rate"]
        return Question(text, lambda reply: self._read(reply, sums, results is not None))

    def _read(self, reply: Reply, sums: Sequence[str], readable: bool) -> Feedback:
        feedback = read_feedback(reply.text.strip(), sums)
        if feedback is None:
            raise Unreadable(f"it is not the marks of {len(sums)} lines, > and {len(ASPECTS)} levels")
        marks, levels = feedback
        values = {name: float(level) for name, level in zip(ASPECTS, levels)}
        return Feedback(values if readable else {**values, ASPECTS[-1]: 0.0}, write_lines(sums, marks))

    def write_refinement(self, episode: Episode, answer: str, feedback: Feedback) -> str:
        sums = _sums(episode.prompt)
        results = read_answer(final_line(answer), sums) or OPEN * len(sums)
        return f"{write_lines(sums, results)}/{feedback.reason}{QUESTIONS['redo']}"


@dataclass(frozen=True)
class WorksheetCritique(CritiqueForm):
    """Critiques of worksheets: 34.752 says that 75 should be 2; a unit quotes a line, its number from 0 before it."""

    def read(self, critique: str, prompt: Prompt) -> list[Unit] | None:
        sums = _sums(prompt)
        remarks = read_critique(final_line(critique), sums)
        if remarks is None:
            return None
        # the flaw that a unit is about follows from the line that it quotes
        kinds = ["m" if result == OPEN else "w" for result in prompt.info["results"]]
        units = [Unit(f"{n}:{pair}", kind, remark) for n, (pair, kind, remark) in enumerate(zip(sums, kinds, remarks))]
        return [unit for unit in units if unit.suggestion != FINE]

    def write(self, units: Sequence[Unit], prompt: Prompt) -> str:
        sums = _sums(prompt)
        remarks = [FINE] * len(sums)
        for unit in units:
            remarks[_line(unit)] = unit.suggestion
        return write_lines(sums, remarks)

    def is_right(self, unit: Unit, prompt: Prompt) -> bool:
        """Whether the line has a flaw of this kind, and the suggestion is its right result."""
        right, line = prompt.info["right"], _line(unit)
        kind = KIND_OF_MARK[mark(right, prompt.info["results"])[line]]
        return kind == unit.kind and right[line] == unit.suggestion

    def write_revision(self, prompt: Prompt, critique: str) -> str:
        judged = write_lines(_sums(prompt), prompt.info["results"])
        return f"{judged}/{final_line(critique)}{QUESTIONS['revise']}"

    def grade(self, revision: str, prompt: Prompt) -> float:
        """Ten times the share of the lines that are right."""
        right = prompt.info["right"]
        results = read_answer(final_line(revision), _sums(prompt)) or ""
        return 10 * sum(one == other for one, other in zip(results, right)) / len(right)


def _line(unit: Unit) -> int:
    return int(unit.quote.partition(":")[0])


def _sums(prompt: Prompt) -> tuple[str, ...]:
    sums = prompt.info.get("sums")
    if sums is None:
        raise ConfigError(f"{prompt.key!r} has no 'sums' in Prompt.info and is no worksheet; take task=worksheets")
    return tuple(sums)
