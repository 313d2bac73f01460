"""FLAG-Trader: the Sharpe ratio by hand, and the market's accounts beside brute force in fractions."""

from fractions import Fraction
from itertools import pairwise, product
from math import sqrt

import gymnasium
import numpy as np
import pytest

from tasks.gym_text import GymText
from tasks.trading.market import ACTIONS, Market, sharpe_ratio


def test_the_sharpe_ratio_by_hand():
    """Returns .01, -.005, .02, 0: mean .00625, squares of the deviations .00036875 / 4, deviation .009601432.

    .650944555 * sqrt(252) = 10.333424. After two: .0025 / .0075 = 1/3; after three: .008333333 / .010274023; the rise
    of the annual ratio is 12.875926 - 5.291503 = 7.584424.
    """
    returns = [0.01, -0.005, 0.02, 0.0]
    assert sharpe_ratio(returns) * sqrt(252) == pytest.approx(10.333424, abs=1e-6)
    assert (sharpe_ratio(returns[:3]) - sharpe_ratio(returns[:2])) * sqrt(252) == pytest.approx(7.584424, abs=1e-6)
    assert sharpe_ratio([0.0] * 4) == sharpe_ratio([0.1] * 3) == sharpe_ratio([0.1]) == 0.0


@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_accounts_are_those_of_brute_force(cost):
    """All 81 plans of four days: the wealth is the product of what is traded and of the prices' ratios."""
    market = Market(days=4, cost=cost)
    for plan in product(range(3), repeat=4):
        market.reset(seed=7)
        prices = [Fraction(price) for price in market.prices]
        total = sum(market.step(action)[1] for action in plan)
        wealth, owns, values = Fraction(1), False, [Fraction(1)]
        for day, action in enumerate(plan):
            wanted = {"buy": True, "hold": owns, "sell": False}[ACTIONS[action]]
            wealth *= 1 - Fraction(cost) * (wanted != owns)
            owns = wanted
            wealth *= prices[day + 1] / prices[day] if owns else 1
            values.append(wealth)
        returns = np.array([float(b / a - 1) for a, b in pairwise(values)])
        expected = returns.mean() / returns.std() if returns.any() else 0.0
        assert market.worth() == pytest.approx(float(wealth), rel=1e-12)
        assert total == pytest.approx(expected, abs=1e-9)  # the rises add up to the ratio at the end


def test_prices_are_those_of_the_seed_and_revert_to_their_mean():
    """x' = .5 x + .1 N: the variance is .01 / (1 - .25) and the correlation of neighbours .5."""
    market = Market(days=20000)
    market.reset(seed=1)
    first = list(market.prices)
    x = np.log(np.array(first) / 100)
    assert x.var() == pytest.approx(0.01 / 0.75, rel=0.05)
    assert np.corrcoef(x[:-1], x[1:])[0, 1] == pytest.approx(0.5, abs=0.03)
    market.reset(seed=1)
    assert market.prices == first
    market.reset(seed=2)
    assert market.prices != first
    walk = Market(days=20000, reversion=0.0)
    walk.reset(seed=1)
    steps = np.diff(np.log(walk.prices))
    assert abs(np.corrcoef(steps[:-1], steps[1:])[0, 1]) < 0.03  # nothing to learn


def test_no_price_of_a_later_day_is_shown():
    market, other = Market(days=3), Market(days=3)
    text, _ = market.reset(seed=3)
    other.reset(seed=3)
    other.prices[1:] = [1.0, 2.0, 3.0]
    assert text == other.render() == f"cash {market.prices[0]:.0f}"
    assert market.step(0)[0] == f"shares {market.prices[0]:.0f} {market.prices[1]:.0f}"


def test_an_episode_in_text_ends_after_its_days_and_only_what_can_be_done_is_admissible():
    task = GymText(env="tasks.trading.market:Market-v0", actions=ACTIONS, split_by="seed", options={"days": 2})
    environment = task.make_environment()
    step = environment.reset(task[0])
    assert step.admissible_actions == ("buy", "hold") and not step.done
    step = environment.step("buy")
    assert step.admissible_actions == ("hold", "sell") and step.reward == 0 and not step.done
    step = environment.step("hold")
    assert step.terminated and step.scores == {"exact": 0.0}  # as much as buying on the first day, not more


def test_bad_options_are_refused_by_their_names():
    for bad in ({"days": 0}, {"reversion": 2.0}, {"cost": 1.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            gymnasium.make("Market-v0", **bad)
