"""Reward of the verdicts of a judge."""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, Task
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.judges.base import JudgeForm, LanguageJudge, NoAnswer

log = logging.getLogger(__name__)
_LINES = 3  # failures of a call that have a line each


class JudgeReward(Reward):
    """Reward of an episode: sum_k weights_k * scores_k over the scores of a judge, and of the task where named.

    An episode without a verdict is an error: it has no score, is not trained on and counts as `rollout/errors`.
    Requests, failures, tokens, seconds and cost of the judge are in the metrics as `rollout/judge_*`.

    Args:
        judge: who answers.
        form: what it is asked about the episodes of a prompt.
        weights: by name of the score.
        max_failed: share of the episodes of an iteration that may be without a verdict; with more the run ends.
    """

    def __init__(self, judge: LanguageJudge, form: JudgeForm, weights: dict[str, float], max_failed: float = 0.5):
        check_fraction("reward", max_failed=max_failed)
        if not weights:
            raise ValueError("reward.weights is empty; name a score, as in reward.weights.judge=1")
        self.judge, self.form, self.weights, self.max_failed = judge, form, weights, max_failed

    @property
    def foreign(self) -> bool:  # type: ignore[override]
        return not self.judge.of_run

    def sampled_models(self) -> frozenset[str]:
        return self.judge.sampled_models()

    def bind(self, ctx: Context) -> JudgeReward:
        bound = copy.copy(self)
        bound.judge = self.judge.bind(ctx)
        return bound

    def check_task(self, task: Task) -> None:
        """Refuse prompts with images for a judge that sees none."""
        prompt = task[0]
        if prompt.images and not self.judge.sees_images:
            raise ValueError(
                f"reward.judge ({type(self.judge).__name__}) reads texts, and {prompt.key!r} has images; take a server "
                "of a model with vision (reward.judge._target_=mmrl.rewards.judges.server.ServerJudge)"
            )

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        groups = list(group_episodes(episodes).values())
        questions = [self.form.ask(group) for group in groups]
        started = time.perf_counter()
        verdicts = iter(self.judge.judge([question for each in questions for question in each]))
        counts = Counter(self.judge.counts)
        counts["seconds"] = time.perf_counter() - started  # type: ignore[assignment]
        by_episode: dict[int, dict[str, float] | NoAnswer] = {}
        for group, each in zip(groups, questions):
            answers = [next(verdicts) for _ in each]
            counts.update(self.form.count(answers))
            by_episode.update(zip(map(id, group), self.form.combine(group, answers), strict=True))
        note_counts(episodes, "judge", counts)
        results = [by_episode[id(episode)] for episode in episodes]
        drop_unanswered(episodes, results, self.max_failed, "verdict of the judge")
        return [{} if isinstance(result, NoAnswer) else result for result in results]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum(self.weights)(group)


def note_counts(episodes: Sequence[Episode], name: str, counts: Counter[str]) -> None:
    """Write the numbers of a server or judge into the first episode, as `rollout/NAME_*`; those of all are summed."""
    if episodes:
        info = episodes[0].info
        info["counts"] = {**info.get("counts", {}), **{f"{name}_{key}": number for key, number in counts.items()}}


def drop_unanswered(episodes: Sequence[Episode], results: Sequence[Any], max_failed: float, what: str) -> None:
    """Make the episodes whose result is a NoAnswer errors, with a line about the first of them.

    Args:
        episodes: of an iteration.
        results: of each episode.
        max_failed: share of them that may have none.
        what: they lack, for messages.

    Raises:
        RuntimeError: more have none.
    """
    failed = [(e, result.reason) for e, result in zip(episodes, results) if isinstance(result, NoAnswer)]
    if len(failed) > max_failed * len(episodes):
        raise RuntimeError(
            f"{len(failed)} of {len(episodes)} episodes have no {what}, more than reward.max_failed={max_failed:g} "
            f"allows; the last: {failed[-1][1]}. Check the address and the server; when it answers again, "
            "ckpt_path=RUN/checkpoints/last.ckpt resumes a run that has begun"
        )
    for number, (episode, reason) in enumerate(failed):
        if number < _LINES:
            log.warning("%s; the episode of %r is left out", reason, episode.prompt.key)
        episode.ended, episode.info["error"], episode.scores = "error", reason, {}
    if len(failed) > _LINES:
        log.warning("%d further episodes have no %s and are left out", len(failed) - _LINES, what)
