import importlib.util
import math
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("prove", Path(__file__).parents[2] / "scripts" / "prove.py")
prove = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prove)


def result(shares, seed=0, n=200):
    rows = [{"val/greedy/exact/mean": str(s), "val/greedy/exact/n": str(float(n))} for s in shares]
    return {"rows": [rows[0], {"val/greedy/exact/mean": ""}, *rows[1:]], "seconds": 1.0, "seed": seed}


def test_interval_is_students():
    # mean 2, standard deviation 1, 3 values: 2 -+ 4.303 / sqrt(3)
    low, high = prove.interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)))
    assert prove.interval([1.0]) == (-math.inf, math.inf)


def test_before_is_the_first_row_and_after_the_last():
    row = prove.held_out(result([0.3, 0.5, 0.9]), "val/greedy/exact/mean")
    assert (row["before"], row["after"], row["episodes"], row["disjoint"]) == (0.3, 0.9, 200, True)


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(SystemExit, match="val/other/mean is not in"):
        prove.held_out(result([0.3, 0.9]), "val/other/mean")


def test_cost_is_what_was_spent_when_the_level_was_reached():
    rows = [
        {"return_100": "", "env_steps": "1"},
        *({"return_100": str(r), "env_steps": str(s)} for r, s in ((400, 2), (475, 3), (480, 4))),
    ]
    found = prove.reached(
        {"rows": rows, "seed": 0, "seconds": 1.0}, {"column": "return_100", "at_least": 475}, "env_steps"
    )
    assert found["cost"] == 3
    never = prove.reached(
        {"rows": rows, "seed": 0, "seconds": 1.0}, {"column": "return_100", "at_least": 500}, "env_steps"
    )
    assert never["cost"] is None


def seeds(*pairs):
    return [prove.held_out(result(pair, seed), "val/greedy/exact/mean") for seed, pair in enumerate(pairs)]


def test_verdicts_follow_the_interval_of_the_effect():
    plan = {"target": {"before": 0.5, "after": 0.9}}
    helps = prove.summary(plan, seeds((0.3, 0.95), (0.35, 0.93), (0.4, 0.97)), None)
    assert helps["verdict"] == "helps" and helps["target_met"]
    short = prove.summary(plan, seeds((0.3, 0.95), (0.35, 0.93), (0.4, 0.8)), None)
    assert not short["target_met"]
    assert prove.summary(plan, seeds((0.5, 0.6), (0.5, 0.4), (0.5, 0.5)), None)["verdict"] == "no effect at this scale"
    assert prove.summary(plan, seeds((0.5, 0.2), (0.5, 0.21), (0.5, 0.19)), None)["verdict"] == "hurts"


def test_a_gain_is_asked_of_every_seed():
    plan = {"target": {"before": 0.6, "gain": 0.25}}
    assert prove.summary(plan, seeds((0.3, 0.6), (0.2, 0.6), (0.5, 0.8)), None)["target_met"]
    assert not prove.summary(plan, seeds((0.3, 0.6), (0.2, 0.6), (0.5, 0.7)), None)["target_met"]
    assert not prove.summary(plan, seeds((0.3, 0.6), (0.2, 0.6), (0.65, 0.95)), None)["target_met"]


def test_the_baseline_is_compared_seed_by_seed():
    plan = {"target": {"before": 0.5, "after": 0.9}}
    method, baseline = seeds((0.3, 0.9), (0.3, 0.9), (0.3, 0.9)), seeds((0.3, 0.7), (0.3, 0.8), (0.3, 0.9))
    assert prove.summary(plan, method, baseline)["effect_over_baseline"] == pytest.approx(0.1)
