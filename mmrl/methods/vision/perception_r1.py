"""Perception-R1: reward the share of an image's annotated facts that a judge finds in the response.

Perception-R1: Advancing Multimodal Reasoning Capabilities of MLLMs via Visual Perception Reward, 2025,
arXiv:2506.07218.

- r = accuracy + 0.1 format + 0.7 visual + repetition: `PerceptionReward`
- one question to a judge about all facts, each present or not: `VisualFacts`
- a rule in place of a language model as judge: `find_facts`
- repetition: `mmrl.rewards.shaping.repeated_ngrams`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode, Task
from mmrl.rewards.judges.base import JudgeForm, LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, answer_of, read_number
from mmrl.rewards.judges.reward import JudgeReward
from mmrl.rewards.shaping import repeated_ngrams


@dataclass(frozen=True)
class VisualFacts(JudgeForm):
    """Score `visual` of an answer: the share of the prompt's facts that the judge finds in it.

    The judge sees facts and answer, neither question nor image, and looks at presence alone. Nothing is asked about a
    prompt without facts, whose answers have the score 0. Source: Perception-R1, 2025, visual perception reward,
    arXiv:2506.07218.

    Args:
        column: column of the row with the facts, a list of texts.
    """

    column: str = "facts"

    def facts_of(self, episode: Episode) -> tuple[str, ...]:
        """The facts of a prompt.

        Raises:
            ValueError: the row has no such column, or it is no list of texts.
        """
        prompt = episode.prompt
        facts = prompt.info.get(self.column)
        if not isinstance(facts, list | tuple) or not all(isinstance(fact, str) for fact in facts):
            raise ValueError(
                f"column {self.column!r} of {prompt.place or prompt.key} must be a list of texts: {facts!r}"
            )
        return tuple(facts)

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self._ask(episode) for episode in group if self.facts_of(episode)]

    def _ask(self, episode: Episode) -> Question:
        facts = self.facts_of(episode)
        listing = "\n".join(f"{number}. {fact}" for number, fact in enumerate(facts, start=1))
        sheet = Sheet({"facts": listing, "answer": answer_of(episode)})
        lines = "\n".join(f"fact{number}-MARK: N" for number in range(1, len(facts) + 1))
        text = sheet.format(
            "Which of the facts does the answer state? Whether its reasoning is right does not matter.",
            f"End with one line for each fact:\n{lines}\nwhere N is 1 if the answer states it, and 0 if not.",
        )
        return Question(text, lambda reply: self._read(sheet, len(facts), reply))

    def _read(self, sheet: Sheet, count: int, reply: Reply) -> float:
        values = sheet.read(reply)
        return sum(read_number(values, f"fact{number}", 0, 1) for number in range(1, count + 1)) / count

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        remaining = iter(verdicts)
        shares = [next(remaining) if self.facts_of(episode) else 0.0 for episode in group]
        return [share if isinstance(share, NoAnswer) else {"visual": share} for share in shares]


class PerceptionReward(JudgeReward):
    """Reward of an episode: sum_k weights_k * scores_k, with the judge's `visual` and a penalty, `repetition`.

    Source: Perception-R1, 2025, arXiv:2506.07218: accuracy, 0.1 of the format, 0.7 of visual, and repetition.

    Args:
        judge: who answers; a model of texts, which sees no image.
        form: what it is asked.
        weights: by name of the score.
        max_failed: share of the episodes of an iteration that may be without a verdict; with more the run ends.
        ngram: words of an n-gram.
        penalty: `repetition` where every n-gram but the first occurred before.
    """

    def __init__(
        self,
        judge: LanguageJudge,
        form: JudgeForm,
        weights: dict[str, float],
        max_failed: float = 0.5,
        ngram: int = 20,
        penalty: float = -2.0,
    ):
        super().__init__(judge, form, weights, max_failed)
        check_at_least(1, "reward", ngram=ngram)
        self.ngram, self.penalty = ngram, penalty

    def check_task(self, task: Task) -> None:
        """Refuse prompts without facts; their images are not shown to the judge."""
        if isinstance(self.form, VisualFacts):
            self.form.facts_of(Episode(task[0], 0, 0))

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        judged = super().scores(episodes)  # an episode without a verdict has no score
        return [scores and {**scores, **self._repetition(e)} for e, scores in zip(episodes, judged)]

    def _repetition(self, episode: Episode) -> Mapping[str, float]:
        return {"repetition": repeated_ngrams(answer_of(episode), self.ngram, self.penalty)}


def find_facts(question: str) -> str:
    """Answer a question of `VisualFacts` by a rule: a fact is stated where its words stand in the answer as they are.

    For `ScriptedJudge`, where facts and answers are written in one small language.
    """
    texts = dict(re.findall(r"<(facts|answer)-[0-9a-f]{8}>\n(.*?)\n</\1-", question, re.DOTALL))
    mark = re.search(r"end in -([0-9a-f]{8}) ", question)
    if mark is None or set(texts) != {"facts", "answer"}:
        raise ValueError(f"no question of VisualFacts: {question[:200]!r}")
    facts = [line.partition(". ")[2] for line in texts["facts"].split("\n")]
    stated = [re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", texts["answer"]) is not None for fact in facts]
    return "\n".join(f"fact{number}-{mark[1]}: {int(each)}" for number, each in enumerate(stated, start=1))
