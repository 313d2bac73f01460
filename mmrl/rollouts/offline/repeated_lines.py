"""Rollout of demonstrations whose lines are written several times, for starts that could be shorter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context
from mmrl.rollouts.offline.demonstrations import Demonstrations


class RepeatedLines(Demonstrations):
    """The task's own expert answers every prompt once and writes each line several times.

    It stands in for a reasoning model that repeats itself, whose answers could be shorter and still be right.

    Args:
        times: each line is written.
        least: if given, the lines of an answer are written `least` to `times` times, a number that is drawn for each
            answer in each iteration, so that the policy learns shorter answers too.
        cache_episodes: keep the encoded demonstrations in memory, as they were first drawn.
    """

    def __init__(self, times: int = 3, least: int | None = None, cache_episodes: bool = False):
        check_at_least(1, "rollout", times=times)
        if least is not None and not 1 <= least <= times:
            raise ValueError(f"rollout.least must be in [1, {times}], the value of rollout.times, got {least}")
        super().__init__(cache_episodes)
        self.times, self.least = times, times if least is None else least

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        if not isinstance(output, str):
            raise ValueError("rollout=RepeatedLines needs a task whose demonstrations are texts")
        draw = derive_rng("repeated_lines", ctx.seed, ctx.iteration, output)
        times = int(draw.integers(self.least, self.times + 1))
        return super().encode(raw, "\n".join(line for line in output.split("\n") for _ in range(times)), ctx)
