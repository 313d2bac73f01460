"""Reward computed by a user's function of the completion and the answer."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from mmrl.rewards.base import Reward
from mmrl.types import Episode

RewardFunction = Callable[[Any, Any], float]
"""(completion, answer) -> reward: the policy's last output, a text or an action, and `Prompt.answer`."""


class FunctionReward(Reward):
    """Reward of every episode of a group: function(episode.output, episode.prompt.answer).

    An exception of the function ends the run; it is never counted as a reward of 0.

    Args:
        function: or its import path, as in my_rewards.brevity.
    """

    def __init__(self, function: str | RewardFunction):
        self.function = _load(function) if isinstance(function, str) else function
        self.name = getattr(self.function, "__qualname__", type(self.function).__name__)

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [self._reward(episode) for episode in group]

    def _reward(self, episode: Episode) -> float:
        key, output = episode.prompt.key, repr(episode.output)[:200]
        try:
            value = self.function(episode.output, episode.prompt.answer)
        except Exception as error:
            raise RuntimeError(
                f"the reward function {self.name!r} raised {type(error).__name__}: {error}; it was given the "
                f"completion {output} and the answer {episode.prompt.answer!r} of {key!r}"
            ) from error
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"the reward function {self.name!r} returned {value!r} for the completion {output} of {key!r}; it must "
                "return a finite number"
            )
        return number


def _load(path: str) -> RewardFunction:
    module, _, name = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), name) if module else None
    except ImportError as error:
        raise ValueError(f"reward.function={path}: {error}; put its folder on PYTHONPATH") from error
    except AttributeError as error:
        raise ValueError(f"reward.function={path}: {error}") from error
    if not callable(function):
        raise ValueError(f"reward.function={path}: must be the import path of a function, as in my_rewards.brevity")
    return function
