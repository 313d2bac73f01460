"""Comparisons of the answers to one prompt: in pairs, in both orders, and as a list."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.questions import (
    Question,
    Reply,
    Sheet,
    Unreadable,
    answer_of,
    order_by_text,
    question_of,
    reference_of,
)

_SHARES = {"1": 1.0, "2": 0.0, "tie": 0.5}
_NO_COMPARISON = "no comparison of the answer has a verdict; the last: "


@dataclass(frozen=True)
class Pairwise(JudgeForm):
    """Score `judge` of an answer: its rate of wins over other answers, a tie counted as half.

    Each pair is judged in both orders, because judges prefer a place; a pair that is judged differently in the two is a
    tie, which `rollout/judge_inconsistent` counts. A pair of which one order has no verdict does not count. The only
    answer of a group has no other one to be compared with; its rate is 0.5, that of equal answers.

    Args:
        instruction: what makes an answer the better one.
        against: `group`, the other answers to the prompt, or `answer`, the right answer that the task states.
        opponents: other answers that each is compared with, those that follow it in the group; None for all.
        name: of the score.
    """

    instruction: str = "Which of the two answers to the question is better: right, helpful and clear?"
    against: Literal["group", "answer"] = "group"
    opponents: int | None = None
    name: str = "judge"

    def __post_init__(self) -> None:
        if self.opponents is not None and self.opponents < 1:
            raise ValueError(f"reward.form.opponents must be at least 1, got {self.opponents}")

    def pairs(self, size: int) -> list[tuple[int, int]]:
        """The pairs of a group; the second is -1 for the right answer."""
        if self.against == "answer":
            return [(i, -1) for i in range(size)]
        reach = size if self.opponents is None else self.opponents
        return [(i, j) for i, j in itertools.combinations(range(size), 2) if j - i <= reach or size - (j - i) <= reach]

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        questions = []
        for i, j in self.pairs(len(group)):
            answer, other = answer_of(group[i]), reference_of(group[i]) if j < 0 else answer_of(group[j])
            questions += [self._ask(group[i], answer, other), self._ask(group[i], other, answer)]
        return questions

    def _ask(self, episode: Episode, first: str, second: str) -> Question:
        sheet = Sheet({"question": question_of(episode), "answer.1": first, "answer.2": second})
        verdict = "End with one line that reads\nbetter-MARK: N\nwhere N is 1 or 2, or tie."
        text = sheet.format(self.instruction, verdict)
        return Question(text, lambda reply: self._read(sheet, reply), tuple(episode.prompt.images))

    def _read(self, sheet: Sheet, reply: Reply) -> float:
        """The first answer's share of the win."""
        value = sheet.read(reply).get("better", "").lower()
        if value not in _SHARES:
            raise Unreadable(f"better: {value!r} is not 1, 2 or tie")
        return _SHARES[value]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        shares: list[list[float]] = [[] for _ in group]
        failure: NoAnswer | None = None
        for (i, j), (first, second) in zip(self.pairs(len(group)), zip(verdicts[::2], verdicts[1::2])):
            failure = next((each for each in (first, second) if isinstance(each, NoAnswer)), failure)
            if isinstance(first, NoAnswer) or isinstance(second, NoAnswer):
                continue
            share = (first + 1 - second) / 2
            share = share if first == 1 - second else 0.5
            shares[i].append(share)
            if j >= 0:
                shares[j].append(1 - share)
        if failure is None and not any(shares):
            return [{self.name: 0.5} for _ in group]
        return [
            {self.name: sum(each) / len(each)}
            if each
            else NoAnswer(_NO_COMPARISON + (failure.reason if failure else ""))
            for each in shares
        ]

    def count(self, verdicts: Sequence[Any]) -> dict[str, int]:
        pairs = [pair for pair in zip(verdicts[::2], verdicts[1::2]) if not any(isinstance(v, NoAnswer) for v in pair)]
        return {"inconsistent": sum(first != 1 - second for first, second in pairs)}


@dataclass(frozen=True)
class Listwise(JudgeForm):
    """Score `judge` of an answer: its rank among the answers to the prompt, 1 for the best and 0 for the worst.

    Answers that the judge calls equal share the mean of their ranks. The judge sees the answers in an order that is
    drawn from their texts, so that the place of sampling has no effect. The only answer of a group has 0.5.

    Args:
        instruction: what makes an answer the better one.
        name: of the score.
    """

    instruction: str = "Rank the answers to the question from the best to the worst."
    name: str = "judge"

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        if len(group) < 2:
            return []
        order = order_by_text(group)
        texts = {f"answer.{place}": answer_of(group[i]) for place, i in enumerate(order, start=1)}
        sheet = Sheet({"question": question_of(group[0]), **texts})
        verdict = (
            "End with one line that reads\nranking-MARK: N > N > N\nwith the number of every answer once; write = in "
            "place of > between equal ones."
        )
        text = sheet.format(self.instruction, verdict)
        return [Question(text, lambda reply: self._read(sheet, order, reply), tuple(group[0].prompt.images))]

    def _read(self, sheet: Sheet, order: Sequence[int], reply: Reply) -> list[float]:
        """The score of each episode of the group."""
        classes = [each.split("=") for each in sheet.read(reply).get("ranking", "").split(">")]
        places = [[place.strip() for place in each] for each in classes]
        if sorted(itertools.chain(*places)) != sorted(str(n) for n in range(1, len(order) + 1)):
            raise Unreadable(f"its ranking does not name each of {len(order)} answers once")
        scores, worse = [0.0] * len(order), len(order)
        for each in places:
            worse -= len(each)  # answers ranked below these
            for place in each:
                scores[order[int(place) - 1]] = (worse + (len(each) - 1) / 2) / (len(order) - 1)
        return scores

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        if not verdicts:
            return [{self.name: 0.5} for _ in group]
        ranks = verdicts[0]
        return [ranks] * len(group) if isinstance(ranks, NoAnswer) else [{self.name: rank} for rank in ranks]
