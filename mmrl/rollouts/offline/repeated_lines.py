"""Rollout of demonstrations whose lines are written several times, for starts that could be shorter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.types import Completion, Context


class RepeatedLines(Demonstrations):
    """The task's own expert answers every prompt once and writes each line several times.

    It stands in for a reasoning model that repeats itself, whose answers could be shorter and still be right.

    Args:
        times: each line is written.
        cache_episodes: keep the encoded demonstrations in memory.
    """

    def __init__(self, times: int = 3, cache_episodes: bool = False):
        if times < 1:
            raise ValueError(f"rollout.times must be at least 1, got {times}")
        super().__init__(cache_episodes)
        self.times = times

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        if not isinstance(output, str):
            raise ValueError("rollout=RepeatedLines needs a task whose demonstrations are texts")
        return super().encode(raw, "\n".join(line for line in output.split("\n") for _ in range(self.times)), ctx)
