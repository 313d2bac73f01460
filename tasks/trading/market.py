"""A market of one asset: hold all or nothing, paid by the rise of the Sharpe ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from mmrl.core.errors import check_at_least, check_interval

DAYS_PER_YEAR = 252
ACTIONS = ("buy", "hold", "sell")


def sharpe_ratio(returns: Sequence[float]) -> float:
    """Mean of the daily returns over their standard deviation (of the population); 0 below two and where all are equal.

    The annual ratio is sqrt(252) times as large.
    """
    if len(returns) < 2 or np.ptp(returns) < 1e-12:
        return 0.0
    return float(np.mean(returns) / np.std(returns))


class Market(gymnasium.Env):
    """One asset whose log-price x goes from day to day by x' = (1 - reversion) x + noise * N(0, 1).

    "buy" spends all cash, "sell" sells all shares, "hold" does neither; a cost is paid of what is traded. The value of
    a day is taken at the next day's price. The reward is the Sharpe ratio of the daily returns so far, less that of the
    day before. An episode is a success if it ends worth more than buying on the first day.

    Args:
        days: decisions of an episode.
        reversion: share of the distance to the mean price that a day takes back; with 0 a random walk.
        noise: standard deviation of a day's noise.
        cost: share of the traded value that is paid.
        history: prices of earlier days that are shown, in percent of the mean price.
        render_mode: only "ansi", as observations are text.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(
        self,
        days: int = 16,
        reversion: float = 0.5,
        noise: float = 0.1,
        cost: float = 0.0,
        history: int = 1,
        render_mode: str | None = None,
    ):
        check_at_least(1, "task.options:", days=days)
        check_at_least(0, "task.options:", history=history)
        check_interval("task.options:", "[0, 1]", reversion=reversion, noise=noise)
        check_interval("task.options:", "[0, 1)", cost=cost)
        self.days, self.reversion, self.noise, self.cost, self.history = days, reversion, noise, cost, history
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces.Text(400), spaces.Discrete(len(ACTIONS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        draws = self.np_random.standard_normal(self.days + 1) * self.noise
        logs = [float(draws[0])]
        for draw in draws[1:]:
            logs.append((1 - self.reversion) * logs[-1] + float(draw))
        self.prices = [100 * float(np.exp(x)) for x in logs]
        self.day, self.cash, self.shares, self.returns = 0, 1.0, 0.0, list[float]()
        return self.render(), self._info()

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        before, price, ratio = self.worth(), self.prices[self.day], sharpe_ratio(self.returns)
        if ACTIONS[action] == "buy" and self.cash > 0:
            self.cash, self.shares = 0.0, self.cash * (1 - self.cost) / price
        elif ACTIONS[action] == "sell" and self.shares > 0:
            self.cash, self.shares = self.shares * price * (1 - self.cost), 0.0
        self.day += 1
        self.returns.append(self.worth() / before - 1)
        reward = sharpe_ratio(self.returns) - ratio
        return self.render(), reward, self.day == self.days, False, self._info()

    def worth(self) -> float:
        """Cash, and the shares at today's price, of one at the beginning."""
        return self.cash + self.shares * self.prices[self.day]

    def render(self) -> str:  # type: ignore[override]
        shown = self.prices[max(0, self.day - self.history) : self.day + 1]
        own = "shares" if self.shares else "cash"
        return f"{own} {' '.join(f'{price:.0f}' for price in shown)}"

    def _info(self) -> dict[str, Any]:
        kept = (1 - self.cost) * self.prices[self.day] / self.prices[0]
        mask = np.array([self.cash > 0, True, self.shares > 0], dtype=np.int8)
        return {"action_mask": mask, "success": self.day == self.days and self.worth() > kept * (1 + 1e-12)}


gymnasium.register("Market-v0", Market)
