"""IRanker: rank by naming, again and again, a candidate to remove; each removal is a prompt with a reward of its own.

IRanker: Towards Ranking Foundation Model, 2025, arXiv:2506.21638.

- the reward of a removal: `score_removal`, `RemovalReward`
- removals until one candidate is left, whose reversed order is the ranking: `Elimination`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Task, Turn
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.base import Rollout, text_observation, turn_seed

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""Begin and end of the thought, and of the answer."""


def read_removal(text: str, tags: Sequence[str] = TAGS) -> str | None:
    """Return the text between the tags of the answer, the last one of several; None without one."""
    answers = re.findall(f"(?s){re.escape(tags[2])}(.*?){re.escape(tags[3])}", text)
    return answers[-1].strip() if answers else None


def score_removal(text: str, pool: Sequence[str], gold: str, tags: Sequence[str] = TAGS) -> dict[str, float]:
    """Scores of a removal, whose sum is IRanker's reward: `exclude`, `format` and `tags`.

    exclude: 1 for a candidate that is not the gold one, 0 for the gold one, -0.5 for a name that is not in the pool, -1
    without an answer. format: 0 for a thought and then an answer, and nothing else, in tags, otherwise -1. tags: -0.25
    for each of the four tags that does not occur exactly once.
    Source: IRanker, 2025, arXiv:2506.21638; released code: verl/utils/reward_score/exclusion_reward.py.
    """
    answer = read_removal(text, tags)
    exclude = -1.0 if answer is None else -0.5 if answer not in pool else float(answer != gold)
    begin, end, first, last = map(re.escape, tags)
    formed = re.fullmatch(rf"(?s)\s*{begin}.*?{end}\s*{first}.*?{last}\s*", text)
    return {
        "exclude": exclude,
        "format": 0.0 if formed else -1.0,
        "tags": -0.25 * sum(text.count(tag) != 1 for tag in tags),
    }


@dataclass(frozen=True)
class RemovalReward(WeightedSum):
    """Reward of a removal: sum_k weights_k * scores_k, with the three of `score_removal` beside those of the task.

    The pool and the gold candidate are `candidates` and `gold` of `Prompt.info`. A whole ranking of `Elimination` has
    none of the three, 0 each.

    Args:
        weights: by name of the score.
        tags: begin and end of the thought, begin and end of the answer.
    """

    tags: Sequence[str] = TAGS

    def __post_init__(self) -> None:
        check_tags(self.tags, "reward")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> dict[str, float]:
        if "removed" in episode.info:
            return {"exclude": 0.0, "format": 0.0, "tags": 0.0}
        info = episode.prompt.info
        return score_removal(str(episode.output), info["candidates"], info["gold"], self.tags)


def check_tags(tags: Sequence[str], part: str) -> None:
    """Refuse tags that are not four different texts."""
    if len(set(tags)) != 4 or not all(tags):
        raise ConfigError(f"{part}.tags must be four different texts, as {list(TAGS)}, got {list(tags)}")


@runtime_checkable
class PoolTask(Protocol):
    """A task whose prompts show a pool of candidates, `Prompt.info["candidates"]`."""

    def with_pool(self, prompt: Prompt, pool: Sequence[str]) -> Prompt:
        """Return the prompt with these of its candidates."""


@dataclass(eq=False)
class _Pool:
    episode: Episode
    left: list[str]
    removed: list[str] = field(default_factory=list)
    over: bool = False


class Elimination(Rollout):
    """Rollout of whole rankings: candidates are removed until one is left; the last one removed is ranked next to it.

    Each removal is a row, whose prompt shows what is left of the pool. A removal that names no candidate of the pool
    removes its last one. The output of an episode is the ranking, the best first, and `info["removed"]` the order of
    removal. Source: IRanker, 2025, section 3, arXiv:2506.21638.

    Args:
        tags: begin and end of the thought, begin and end of the answer.
    """

    def __init__(self, tags: Sequence[str] = TAGS):
        check_tags(tags, "rollout")
        self.tags = tuple(tags)

    def check_task(self, task: Task) -> None:
        if not isinstance(task, PoolTask) or not task[0].info.get("candidates"):
            raise ConfigError(
                f"rollout: task {task.name!r} shows no pool of candidates; give it with_pool(prompt, pool) and "
                "info['candidates'], as tasks.ranking.pools.Pools has them"
            )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        pools = [
            _Pool(Episode(prompt, slot, i), list(prompt.info["candidates"]))
            for slot, prompt in prompts
            for i in ctx.sample_indices(slot)
        ]
        active = pools
        while active := [pool for pool in active if not pool.over]:
            for pool, done in zip(active, ctx.engine.sample(self._ask(active, ctx), ctx.sampling), strict=True):
                self._remove(pool, done)
            ctx.progress("elimination", sum(pool.over for pool in pools), len(pools))
        return [pool.episode for pool in pools]

    def _ask(self, pools: Sequence[_Pool], ctx: Context) -> list[Request]:
        requests = []
        for pool in pools:
            prompt = ctx.task.with_pool(pool.episode.prompt, pool.left)  # type: ignore[attr-defined]
            seed = turn_seed(pool.episode.group, pool.episode.sample_index, ctx, len(pool.removed))
            requests.append(Request(text_observation(prompt), seed))
        return requests

    def _remove(self, pool: _Pool, done: Completion) -> None:
        """Remove a candidate; with one that is left the ranking is whole."""
        episode = pool.episode
        episode.turns = [*episode.turns, Turn(done)]
        counts = episode.info.setdefault("counts", {"elimination/invalid": 0})
        if done.ended == "error":
            episode.ended, pool.over = "error", True
            episode.info["error"] = "the engine gave no removal"
            return
        name = read_removal(str(done.output), self.tags)
        counts["elimination/invalid"] += name not in pool.left
        pool.removed.append(name if name in pool.left else pool.left[-1])  # type: ignore[arg-type]
        pool.left.remove(pool.removed[-1])
        if len(pool.left) <= 1:
            ranking = [*pool.left, *reversed(pool.removed)]
            episode.turns = [*episode.turns[:-1], Turn(replace(done, output=" ".join(ranking)))]
            episode.info["removed"], pool.over = list(pool.removed), True
