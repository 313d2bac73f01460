"""The bot that BabyAI's levels are demonstrated by."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class BotWrapper(gymnasium.Wrapper):
    """A BabyAI level with the package's bot (Chevalier-Boisvert et al., "BabyAI", 2019, arXiv:1810.08272, section 3).

    The bot is made when it is first asked in an episode, and reads what was done since: ask it in every step or never.
    """

    _bot: Any = None
    _taken: Any = None

    def reset(self, **kwargs: Any) -> Any:
        self._bot = self._taken = None
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        self._taken = action
        return self.env.step(action)

    def plan(self) -> float:
        """The bot's next action: the middle of its interval in [-1, 1], as `image_observations.VLAWrapper` reads it."""
        if self._bot is None:
            from minigrid.utils.baby_ai_bot import BabyAIBot

            self._bot = BabyAIBot(self.env.unwrapped)
        number = self._bot.replan(self._taken)
        space: spaces.Discrete = self.action_space  # type: ignore[assignment]
        return (2 * (int(number) - int(space.start)) + 1) / int(space.n) - 1


def plan_actions(env: Any) -> np.ndarray:
    """The bots' next actions in a vector environment of BabyAI levels, float32 [n, 1, 1].

    A bot that gives up, as it does in the levels that its package names, proposes the middle action.
    """
    return np.array([[[_plan(each)]] for each in env.envs], np.float32)


def _plan(env: Any) -> float:
    try:
        return env.get_wrapper_attr("plan")()
    except (AssertionError, ValueError, IndexError):  # the bot's own signs that it has no plan
        return 0.0
