"""AI feedback: who says which of two captions shows more progress, a rule with noise or a language model.

arXiv:2410.05656, section 3; Motif, arXiv:2310.00166, section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import ConfigError, check_fraction
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, Unreadable

FIRST, SECOND, EQUAL = 1.0, 0.0, 0.5
"""Targets of P(first > second)."""
UNSURE = None
"""Label of a pair that is not trained on."""
Label = float | None
_WORDS: dict[str, Label] = {"1": FIRST, "2": SECOND, "equal": EQUAL, "unsure": UNSURE}


@dataclass(frozen=True)
class CaptionPair:
    """Two captions that are compared.

    Attributes:
        first: caption.
        second: caption.
        progress: of either, from the simulator, for rules and for measuring labels; None where there is no rule.
    """

    first: str
    second: str
    progress: tuple[float, float] | None = None

    def true_label(self) -> Label:
        """The label by the progress: 1 where the first is further, 0 the second, 0.5 neither; None without progress."""
        if self.progress is None:
            return None
        first, second = self.progress
        return EQUAL if first == second else FIRST if first > second else SECOND


class CaptionAnnotator(ABC):
    """Base class of who labels pairs of captions."""

    @abstractmethod
    def label(self, pairs: Sequence[CaptionPair], rng: np.random.Generator) -> list[Label | NoAnswer]:
        """Label each pair: 1, 0 or 0.5 (equal) as the target of P(first > second), None (unsure), or no answer.

        Args:
            pairs: of captions.
            rng: drawn from by an annotator that is noisy.
        """


class RuleAnnotator(CaptionAnnotator):
    """Scripted annotator: compares the progress that the simulator reports, with noise.

    Args:
        noise: probability that a label is wrong: the other caption, or for two equal ones either of the two.
        unsure: probability that it says so in place of a label.
    """

    def __init__(self, noise: float = 0.1, unsure: float = 0.0):
        check_fraction("rollout.annotator", noise=noise, unsure=unsure)
        self.noise, self.unsure = noise, unsure

    def label(self, pairs: Sequence[CaptionPair], rng: np.random.Generator) -> list[Label | NoAnswer]:
        if any(pair.progress is None for pair in pairs):
            raise ConfigError(
                "rollout.annotator: RuleAnnotator compares the progress of a simulator, and rollout.progress is null; "
                "name a rule, as rollout.progress._target_=sims.craft.progress.RecipeProgress, or take JudgeAnnotator"
            )
        wrong, either, unsure = rng.random((3, len(pairs)))
        labels: list[Label | NoAnswer] = []
        for i, pair in enumerate(pairs):
            label = pair.true_label()
            if wrong[i] < self.noise:
                label = float(either[i] < 0.5) if label == EQUAL else 1 - float(label)  # type: ignore[arg-type]
            labels.append(UNSURE if unsure[i] < self.unsure else label)
        return labels


class JudgeAnnotator(CaptionAnnotator):
    """Annotator that asks a language model, behind a server or in this process.

    Args:
        judge: `mmrl.rewards.judges.server.ServerJudge`, or `mmrl.rewards.judges.model.ModelJudge` for a local model.
        goal: of the agent, in words.
    """

    def __init__(self, judge: LanguageJudge, goal: str):
        if judge.of_run:
            raise ValueError(
                f"rollout.annotator.judge={type(judge).__name__} is a model of the run, and pairs are labelled before "
                "it; take mmrl.rewards.judges.server.ServerJudge or mmrl.rewards.judges.model.ModelJudge"
            )
        self.judge, self.goal = judge, goal

    def label(self, pairs: Sequence[CaptionPair], rng: np.random.Generator) -> list[Label | NoAnswer]:
        return self.judge.judge([self._ask(pair) for pair in pairs])

    def _ask(self, pair: CaptionPair) -> Question:
        sheet = Sheet({"goal": self.goal, "first": pair.first, "second": pair.second})
        task = "Two states of an agent are described. Which of them shows more progress towards the goal?"
        verdict = (
            "End with one line that reads\nbetter-MARK: N\nwhere N is 1 for the first state, 2 for the second, equal "
            "if both show the same progress, or unsure if you cannot tell."
        )
        return Question(sheet.format(task, verdict), lambda reply: _read_label(sheet, reply))


def _read_label(sheet: Sheet, reply: Reply) -> Label:
    value = sheet.read(reply).get("better", "").lower()
    if value not in _WORDS:
        raise Unreadable(f"better: {value!r} is not 1, 2, equal or unsure")
    return _WORDS[value]
