"""EvoPresent: a judge of slides trained on scores, defects and comparisons, and revisions with rollback.

Presenting a Paper is an Art: Self-Improvement Aesthetic Agents for Academic Presentations, 2025, arXiv:2510.05571.

- rewards of a score, named defects and a comparison: the task `tasks.drawings.slides.Slides`, mixed in one run
- revisions until the judge is content, with rollback: `choose_version`, `RevisionLoop`; what they gain:
  `RevisionGain`, and as a reward `RevisionReward`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.base import Rollout, text_observation, turn_seed


def choose_version(scores: Sequence[float]) -> int:
    """Return the index of the working version after these scores of the draft and of its revisions.

    Each revision changes the working version, and one with a lower score is rolled back. So no earlier version has a
    higher score.

    Source: EvoPresent, 2025, rollback, arXiv:2510.05571.
    """
    working = 0
    for version, score in enumerate(scores):
        working = version if score >= scores[working] else working
    return working


def read_number(text: str, otherwise: float = 0.0) -> float:
    """Parse a score in [0, 10]; another text counts as `otherwise`."""
    try:
        value = float(text)
    except ValueError:
        return otherwise
    return value if 0 <= value <= 10 else otherwise


class RevisionLoop(Rollout):
    """Rollout in which the policy scores a draft and its revisions by the task, until a score suffices.

    A turn is one score; there are at most `rounds` revisions. A revision with a lower score than the working version is
    rolled back. The task has `revise(prompt, rng)`, which returns the prompt of a changed version, and info["quality"]
    of a prompt is the quality of the version. `info["qualities"]` of an episode lists that of all versions in order,
    and `info["working"]` is the index of the final one. Source: EvoPresent, 2025,
    arXiv:2510.05571.

    Args:
        rounds: most revisions.
        enough: score at which the loop ends.
    """

    def __init__(self, rounds: int = 3, enough: float = 8.0):
        check_at_least(1, "rollout", rounds=rounds)
        self.rounds, self.enough = rounds, enough

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        task: Any = ctx.task
        if not hasattr(task, "revise"):
            raise ValueError(f"rollout: task {ctx.task.name!r} revises nothing; RevisionLoop needs `revise`, as Slides")
        episodes = [Episode(prompt, slot, i) for slot, prompt in prompts for i in ctx.sample_indices(slot)]
        versions: list[list[Prompt]] = [[episode.prompt] for episode in episodes]
        scores: list[list[float]] = [[] for _ in episodes]
        live = list(range(len(episodes)))
        for number in range(self.rounds + 1):
            live_episodes = [episodes[i] for i in live]
            seeds = [turn_seed(e.group, e.sample_index, ctx, number) for e in live_episodes]
            requests = [Request(text_observation(versions[i][-1]), seed) for i, seed in zip(live, seeds)]
            for i, done in zip(live, ctx.engine.sample(requests, ctx.sampling) if requests else []):
                episodes[i].turns = [*episodes[i].turns, Turn(done)]
                episodes[i].ended = "error" if done.ended == "error" else episodes[i].ended
                scores[i].append(read_number(str(done.output).strip()))
            working = [choose_version(one) for one in scores]
            live = [i for i in live if scores[i][working[i]] < self.enough and episodes[i].ended != "error"]
            for i in live if number < self.rounds else []:
                key = (ctx.seed, ctx.purpose, ctx.iteration, episodes[i].group, episodes[i].sample_index, number)
                versions[i].append(task.revise(versions[i][working[i]], derive_rng("revise", *key)))
        for episode, episode_versions, episode_scores in zip(episodes, versions, scores):
            qualities = [float(prompt.info["quality"]) for prompt in episode_versions]
            episode.info |= {"qualities": qualities, "working": choose_version(episode_scores)}
        return episodes


@dataclass(frozen=True)
class RevisionReward(WeightedSum):
    """Reward of an episode of `RevisionLoop`: its weighted scores `gain` and `near`.

    gain: the quality of the final version less that of the draft, over 10. near: the share of the scores that differ
    from the quality of their version by less than `within`. So a judge that takes back good revisions, or stops at a
    bad version, is paid less. Source: EvoPresent, 2025, the threshold of a score, arXiv:2510.05571; a reward of the
    loop is ours.

    Args:
        weights: by name of the score.
        within: of a score, the paper's zeta.
    """

    within: float = 0.25

    def __post_init__(self) -> None:
        check_positive("reward", within=self.within)

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> dict[str, float]:
        if "qualities" not in episode.info:
            raise KeyError("revision_reward: an episode has no info['qualities']; play it with RevisionLoop")
        qualities, working = episode.info["qualities"], episode.info["working"]
        scores = [read_number(str(turn.completion.output).strip(), -inf) for turn in episode.turns]
        near = [abs(score - quality) < self.within for score, quality in zip(scores, qualities)]
        return {"gain": (qualities[working] - qualities[0]) / 10, "near": sum(near) / len(near) if near else 0.0}


@dataclass(frozen=True)
class RevisionGain(Evaluator):
    """Mean quality of drafts, of final versions and of the best versions, and the gain of final versions over drafts.

    Episodes are those of `RevisionLoop`. Source: EvoPresent, 2025, arXiv:2510.05571.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        if any("qualities" not in episode.info for episode in valid):
            raise KeyError("revision_gain: an episode has no info['qualities']; play it with RevisionLoop")
        results = [(e.info["qualities"], e.info["working"]) for e in valid]

        def mean(values: list[float]) -> float:
            return sum(values) / len(values) if values else nan

        draft, final = mean([all_[0] for all_, _ in results]), mean([all_[working] for all_, working in results])
        best = mean([max(all_) for all_, _ in results])
        counts = {"n": float(len(results)), "errors": count_errors(episodes)}
        return {"draft": draft, "chosen": final, "best": best, "gain": final - draft, **counts}
