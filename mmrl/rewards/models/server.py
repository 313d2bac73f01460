"""Reward model behind a server, as `mmrl serve` of a classifier answers."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.judges.client import NoAnswer, PassingError, ServerConnection
from mmrl.rewards.judges.reward import drop_unanswered, note_counts
from mmrl.rewards.models.learned import list_messages

SCORE = "reward_model"
"""Name of the score."""


class ServerReward(ServerConnection, Reward):
    """Reward of an episode: sum_k weights_k * scores_k, with the score `reward_model` of a server among them.

    A request has the answers to one prompt, which the server scores in one batch: their scores are those of
    `ClassifierReward` with the same weights. An episode without a score is an error; requests, retries and seconds are
    in the metrics as `rollout/reward_model_*`.

    Args:
        url: of the server, as http://127.0.0.1:8000.
        weights: by name of the score.
        key_variable: environment variable with the token of the server.
        max_failed: share of the episodes of an iteration that may be without a score; with more the run ends.
        connection: further options of `ServerConnection`: max_requests, timeout_s, retries, backoff_s.
    """

    foreign = True

    def __init__(
        self,
        url: str | None = None,
        weights: dict[str, float] | None = None,
        key_variable: str = "MMRL_SERVE_TOKEN",
        max_failed: float = 0.5,
        **connection: Any,
    ):
        if not url or not url.startswith(("http://", "https://")):
            raise ValueError(f"the reward needs reward.url=http://HOST:PORT of a reward model's server, got {url!r}")
        check_fraction("reward", max_failed=max_failed)
        super().__init__(url, key_variable=key_variable, **connection)
        self.weights, self.max_failed = weights or {SCORE: 1.0}, max_failed

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        groups = list(group_episodes(episodes).values())
        bodies = [
            {"conversations": [list_messages(e) for e in group], "tools": [list(e.prompt.tools) for e in group]}
            for group in groups
        ]
        counts, started = Counter(requests=len(bodies)), time.perf_counter()
        answers = self.client.ask_all("/score", bodies, lambda n, answer: _read(answer, len(groups[n])), counts)
        counts["seconds"] = time.perf_counter() - started  # type: ignore[assignment]
        by_episode: dict[int, Any] = {}
        for group, answer in zip(groups, answers):
            values = [answer] * len(group) if isinstance(answer, NoAnswer) else [{SCORE: value} for value in answer]
            by_episode.update(zip(map(id, group), values))
        note_counts(episodes, SCORE, counts)
        results = [by_episode[id(episode)] for episode in episodes]
        drop_unanswered(episodes, results, self.max_failed, "score of the reward model")
        return [{} if isinstance(result, NoAnswer) else result for result in results]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum(self.weights)(group)


def _read(answer: Any, count: int) -> list[float]:
    values = answer.get("scores") if isinstance(answer, dict) else None
    if isinstance(values, list) and len(values) == count:
        numbers = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
        if len(numbers) == count:
            return list(map(float, numbers))
    raise PassingError(f"answered no list of {count} scores: {str(answer)[:200]}")
