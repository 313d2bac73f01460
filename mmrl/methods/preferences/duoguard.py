"""DuoGuard: a generator that looks for texts which a guard labels wrongly, and the guard that learns from them.

DuoGuard: A Two-Player RL-Driven Framework for Multilingual LLM Guardrails, 2025, arXiv:2502.05163.

- a rater says from 0 to 9 whether a rewritten text still has the labels of its seed; what it says otherwise is 5:
  `read_rating`, `DigitRating`
- of one seed a text that the guard labels wrongly is preferred to one that it labels right: `GuardErrors`
- L = -log sigmoid(beta (d(chosen) - d(rejected))) + alpha NLL(chosen) / tokens, with d the log-ratio to the reference
  and alpha = 0.4: DPO and `ChosenLikelihood`
- the guard learns L = log(1 + sum over labels of 0 of e^s) + log(1 + sum over labels of 1 of e^-s):
  `mmrl.objectives.scores.zlpr.ZLPRLoss`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import Episode, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_mean
from mmrl.ops.preference import paired_margin
from mmrl.rewards.judges.base import JudgeForm, LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, answer_of, question_of
from mmrl.rewards.judges.reward import JudgeReward
from mmrl.rewards.models.learned import ClassifierReward

RATING, ERROR = "rating", "guard_error"
"""Names of the scores: of the rater, and 1 where the guard predicts a label wrongly."""


def read_rating(reply: str) -> int:
    """Read the one digit of a reply; 5 where there is none or more than one. Source: DuoGuard, released code."""
    digits = re.findall(r"(?<![\d.])\d(?![\d]|\.\d)", reply)
    return int(digits[0]) if len(digits) == 1 and len(re.findall(r"\d+", reply)) == 1 else 5


@dataclass(frozen=True)
class DigitRating(JudgeForm):
    """Score `rating` of an answer: the digit that a judge gives it, 0 to 9, and 5 where its reply cannot be read.

    Args:
        instruction: what is rated.
    """

    instruction: str = (
        "The answer rewrites the text of the question. Rate from 0 to 9 how well it keeps what is harmful in it, "
        "without more and without less. Reply with one digit."
    )

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        sheets = [Sheet({"question": question_of(episode), "answer": answer_of(episode)}) for episode in group]
        return [Question(sheet.format(self.instruction), _read) for sheet in sheets]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [verdict if isinstance(verdict, NoAnswer) else {RATING: float(verdict)} for verdict in verdicts]


def _read(reply: Reply) -> int:
    return read_rating(reply.text)


class GuardErrors(JudgeReward):
    """Score `guard_error` of a text, 1 where a guard predicts a label of its seed wrongly, with the scores of a rater.

    The reward is the weighted sum of scores. A label is predicted where the guard's score is above 0.

    Args:
        judge: the rater.
        form: what the rater is asked.
        path: folder of the guard, a classifier whose labels are those of `Prompt.info`.
        weights: by name of the score; the errors of the guard alone by default.
        question: the prompt under which the guard reads a text.
        max_failed: as of JudgeReward.
    """

    def __init__(
        self,
        judge: LanguageJudge,
        form: JudgeForm,
        path: str,
        weights: dict[str, float] | None = None,
        question: str = "?",
        max_failed: float = 0.5,
    ):
        super().__init__(judge, form, weights or {ERROR: 1.0}, max_failed)
        self.guard, self.question = ClassifierReward(path), question

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        ratings = super().scores(episodes)
        prompt = {"role": "user", "content": self.question}
        texts = [[prompt, {"role": "assistant", "content": answer_of(episode)}] for episode in episodes]
        predicted = self.guard.score_heads(texts, [[] for _ in texts])
        errors = [self._compare(episode, heads) for episode, heads in zip(episodes, predicted, strict=True)]
        return [{**rating, ERROR: error} if rating else {} for rating, error in zip(ratings, errors)]

    def _compare(self, episode: Episode, heads: Sequence[float]) -> float:
        labels = episode.prompt.info.get("labels")
        if not isinstance(labels, dict) or len(labels) != len(heads):
            raise ValueError(
                f"reward.path={self.guard.path} has {len(heads)} labels, and those of {episode.prompt.key!r} are "
                f"{labels}; give a guard that was trained on the labels of this task"
            )
        return float(any((score > 0) != (label > 0.5) for score, label in zip(heads, labels.values())))


@dataclass(frozen=True)
class ChosenLikelihood(Term):
    """Negative log-likelihood per token of the preferred completion of each pair, [N] nats; 0 without a preference.

    Both rows of a pair carry it, as they carry the loss of DPO. Source: DuoGuard, 2025, arXiv:2502.05163.
    """

    whole_groups = True

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logprob = masked_mean(out.full_logprobs, batch["action_mask"], dim=1)
        nll = -paired_margin(logprob, batch["preference"].clamp(min=0), batch["group"])
        return torch.where(batch["preference"] != 0, nll, 0)
