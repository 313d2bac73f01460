"""RLRF: candidates are rated on aspects with a reason, the best are refined by the policy on that reason, then DPO.

Reinforcement Learning from Reflective Feedback (RLRF): Aligning and Improving LLMs via Fine-Grained Self-Reflection,
2024, arXiv:2403.14238.

- a feedback model rates an answer with one of three levels on each aspect, and writes a reason: `AspectFeedback`
- the n drafts of highest total are refined on levels and reason, into m further candidates: `Reflections`
- all n + m candidates are rated anew, and the best of them is paired with one of a lower total: the filter `pairs` of
  `conf/rounds/rlrf.yaml`, whose DPO has the policy before as reference
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.rewards.critiques import FeedbackForm, FineGrainedFeedback, SheetFeedback
from mmrl.rewards.judges.base import JudgeForm, LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, answer_of
from mmrl.rollouts.base import text_observation, turn_seed
from mmrl.rollouts.text.single_turn import SingleTurn

TOTAL = "total"
"""Name of the score that is the sum of the levels of all aspects."""


@dataclass(frozen=True)
class AspectFeedback(JudgeForm):
    """Scores of an answer: its level of 0, 1 or 2 on each aspect, and their sum `total`.

    Source: RLRF, 2024, fine-grained feedback, arXiv:2403.14238.

    Args:
        feedback: how the feedback model is asked.
    """

    feedback: FeedbackForm

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        return [self.feedback.ask(episode, answer_of(episode)) for episode in group]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [
            verdict if isinstance(verdict, NoAnswer) else {**verdict.levels, TOTAL: verdict.total}
            for verdict in verdicts
        ]


def select_best(totals: Sequence[float | None], count: int) -> list[int]:
    """Return the numbers of the `count` drafts of highest total, the best first; of equals the first one.

    A draft without feedback has None and is not selected.
    """
    rated = [n for n, total in enumerate(totals) if total is not None]
    return sorted(rated, key=lambda n: (-(totals[n] or 0.0), n))[:count]


class Reflections(SingleTurn):
    """Rollout of candidates: drafts of the policy, and its refinements of the best of them, given feedback.

    The first `drafts` episodes of a prompt are completions of it. The others refine the best drafts in turn: the policy
    reads the question, the draft, and the feedback on it, and writes another answer. An episode's answer is that text.
    `info["refines"]` of a refinement is the number of its draft. Without a draft with feedback the refinements are
    errors. Source: RLRF, 2024, arXiv:2403.14238.

    Args:
        judge: the feedback model.
        feedback: how it is asked, and how the policy is asked to refine.
        drafts: n, completions of a prompt before the refinements; the rest of its samples are m refinements. With as
            many drafts as samples nothing is refined.
        best: drafts of highest total that are refined.
    """

    def __init__(self, judge: LanguageJudge, feedback: FeedbackForm | None = None, drafts: int = 20, best: int = 3):
        check_at_least(1, "rollout", drafts=drafts, best=best)
        if best > drafts:
            raise ConfigError(
                f"rollout.best={best} drafts are refined, and there are rollout.drafts={drafts}; lower best"
            )
        self.judge, self.feedback = judge, feedback or SheetFeedback()
        self.drafts, self.best = drafts, best

    def sampled_models(self) -> frozenset[str]:
        return self.judge.sampled_models()

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        groups = [self._begin(slot, prompt, ctx) for slot, prompt in prompts]
        drafts = [episode for group in groups for episode in group[: self.drafts]]
        self._sample(drafts, [text_observation(episode.prompt) for episode in drafts], ctx)
        # feedback on every draft that was written
        written = [episode for episode in drafts if episode.ended != "error"]
        questions = [self.feedback.ask(episode, answer_of(episode)) for episode in written]
        verdicts = self.judge.bind(ctx).judge(questions) if questions else []
        rated = {id(episode): verdict for episode, verdict in zip(written, verdicts)}
        refined = [each for group in groups for each in self._plan(group, rated)]
        self._sample([episode for episode, _ in refined], [observation for _, observation in refined], ctx)
        return [episode for group in groups for episode in group]

    def _begin(self, slot: int, prompt: Prompt, ctx: Context) -> list[Episode]:
        indices = ctx.sample_indices(slot)
        if len(indices) < self.drafts:
            raise ConfigError(
                f"rollout.drafts={self.drafts}, and a prompt has {len(indices)} samples; raise num_samples of the "
                "stage, or data.group_size, or lower rollout.drafts"
            )
        return [Episode(prompt, slot, i) for i in indices]

    def _plan(self, group: Sequence[Episode], rated: dict[int, Any]) -> list[tuple[Episode, dict[str, Any]]]:
        """The refinements of a group with what the policy reads for each."""
        drafts, others = group[: self.drafts], group[self.drafts :]
        verdicts = [rated.get(id(episode)) for episode in drafts]
        best = select_best(
            [each.total if isinstance(each, FineGrainedFeedback) else None for each in verdicts], self.best
        )
        plans = []
        for number, episode in enumerate(others):
            if not best:
                episode.ended, episode.info["error"] = "error", "no draft of the prompt has feedback"
                continue
            refines = best[number % len(best)]
            text = self.feedback.write_refinement(drafts[refines], answer_of(drafts[refines]), verdicts[refines])
            episode.info["refines"] = refines
            plans.append((episode, {**text_observation(episode.prompt), "messages": _ask_user(text)}))
        return plans

    def _sample(self, episodes: Sequence[Episode], observations: Sequence[Any], ctx: Context) -> None:
        """Append a completion to each of the episodes."""
        requests = [
            Request(observation, turn_seed(episode.group, episode.sample_index, ctx))
            for episode, observation in zip(episodes, observations, strict=True)
        ]
        for episode, done in zip(episodes, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            episode.turns.append(Turn(done))  # type: ignore[attr-defined]
            episode.ended = done.ended


def _ask_user(text: str) -> tuple[dict[str, str]]:
    return ({"role": "user", "content": text},)
