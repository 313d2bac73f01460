"""Feedback on filled worksheets and critiques of them, as models that learned `Worksheets` write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.critiques import CritiqueForm, FeedbackForm, FineGrainedFeedback, Unit
from mmrl.rewards.judges.questions import Question, Reply, Unreadable
from tasks.checks import final_line
from tasks.worksheets.language import (
    ASPECTS,
    FLAW,
    KIND_OF_MARK,
    OPEN,
    PLAIN,
    mark,
    read_answer,
    read_feedback,
    read_remarks,
    write_lines,
    write_remarks,
)
from tasks.worksheets.task import QUESTIONS


@dataclass(frozen=True)
class WorksheetFeedback(FeedbackForm):
    """Asks a model that learned to rate: 347.754.? is answered 347y752n>122, its results, marks and levels.

    The reason is the marks, so that the policy which refines does not read the results. An answer with other lines is
    shown as the open worksheet, and has the readability 0.
    """

    def ask(self, episode: Episode, answer: str) -> Question:
        sums = _sums(episode.prompt)
        results = read_answer(final_line(answer), sums)
        text = write_lines(sums, results or OPEN * len(sums)) + QUESTIONS["rate"]
        return Question(text, lambda reply: self._read(reply, sums, results is not None))

    def _read(self, reply: Reply, sums: Sequence[str], readable: bool) -> FineGrainedFeedback:
        feedback = read_feedback(reply.text.strip(), sums)
        if feedback is None:
            raise Unreadable(f"it is not the marks of {len(sums)} lines, > and {len(ASPECTS)} levels")
        _, marks, levels = feedback
        values = {name: float(level) for name, level in zip(ASPECTS, levels)}
        return FineGrainedFeedback(values if readable else {**values, ASPECTS[-1]: 0.0}, marks)

    def write_refinement(self, episode: Episode, answer: str, feedback: FineGrainedFeedback) -> str:
        sums = _sums(episode.prompt)
        results = read_answer(final_line(answer), sums) or OPEN * len(sums)
        return write_lines(sums, results, feedback.reason) + QUESTIONS["redo"]


@dataclass(frozen=True)
class WorksheetCritique(CritiqueForm):
    """Critiques of worksheets: 347.752x says that 75 should be 2; a unit quotes a line, its number from 0 before it."""

    def read(self, critique: str, prompt: Prompt) -> list[Unit] | None:
        sums = _sums(prompt)
        remarks = read_remarks(final_line(critique), sums)
        if remarks is None:
            return None
        # the kind of a flaw follows from the line that a unit quotes
        kinds = ["m" if result == OPEN else "w" for result in prompt.info["results"]]
        rows = enumerate(zip(sums, kinds, remarks))
        return [Unit(f"{n}:{pair}", kind, remark) for n, (pair, kind, remark) in rows if remark is not None]

    def write(self, units: Sequence[Unit], prompt: Prompt) -> str:
        results, signs = list(prompt.info["results"]), [PLAIN] * len(_sums(prompt))
        for unit in units:
            results[_line(unit)], signs[_line(unit)] = unit.suggestion, FLAW
        return write_lines(_sums(prompt), results, signs)

    def is_right(self, unit: Unit, prompt: Prompt) -> bool:
        """Whether the line has a flaw of this kind, and the suggestion is its right result."""
        right, line = prompt.info["right"], _line(unit)
        kind = KIND_OF_MARK[mark(right, prompt.info["results"])[line]]
        return kind == unit.kind and right[line] == unit.suggestion

    def write_revision(self, prompt: Prompt, critique: str) -> str:
        """The answer and the flaws that the critique names; a critique that cannot be read stands there as it is."""
        sums = _sums(prompt)
        remarks = read_remarks(final_line(critique), sums)
        flaws = final_line(critique) if remarks is None else write_remarks(sums, remarks)
        return f"{write_lines(sums, prompt.info['results'])}/{flaws}{QUESTIONS['revise']}"

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
