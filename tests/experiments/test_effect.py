import math
from dataclasses import replace

import pytest

from mmrl.core.errors import ConfigError
from mmrl.experiments.effect import (
    cost_to_threshold,
    describe_verdict,
    measure,
    smallest_shown,
    student_interval,
    summarise,
)
from mmrl.experiments.experiment import Experiment

NOTHING = "no effect at this scale"


def experiment(**keywords):
    return Experiment("grpo", budget="none", metric="return_100", **keywords)


def result(shares, seed=0, n=200):
    rows = [{"val/greedy/exact/mean": str(s), "val/greedy/exact/n": str(float(n))} for s in shares]
    return {"rows": [rows[0], {"val/greedy/exact/mean": ""}, *rows[1:]], "seconds": 1.0, "seed": seed}


def seeds(*pairs):
    return [measure(result(pair, seed), "val/greedy/exact/mean") for seed, pair in enumerate(pairs)]


def test_interval_is_students():
    # mean 2, standard deviation 1, 3 values: 2 -+ 4.303 / sqrt(3)
    low, high = student_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)), abs=1e-3)
    assert student_interval([1.0]) == (-math.inf, math.inf)


def test_equal_gains_have_the_interval_of_the_held_out_problems():
    # one problem of 64 more on each seed: Student's interval has no width, the Wilson intervals overlap
    pairs = ((62 / 64, 63 / 64), (63 / 64, 1.0), (62 / 64, 63 / 64))
    rows = [measure(result(pair, n=64), "val/greedy/exact/mean") for pair in pairs]
    one_more = summarise(experiment(), rows, None)
    assert one_more["verdict"] == NOTHING and one_more["interval"][0] < 0 < one_more["interval"][1]
    rise = summarise(experiment(), seeds((0.2, 0.5), (0.2, 0.6)), seeds((0.2, 0.5 - 0.005), (0.2, 0.6 - 0.005)))
    low, high = rise["interval_over_baseline"]
    assert rise["verdict"] == NOTHING and low < 0 < high  # one of 200 more than the baseline on each seed
    assert summarise(experiment(), seeds((0.0, 1.0)), None)["interval"] == (-math.inf, math.inf)  # a seed alone
    from_nothing = summarise(experiment(), seeds((0.0, 1.0), (0.0, 1.0)), None)
    # Wilson of 0 of 200 is [0, 0.0188], of 200 of 200 [0.9812, 1]
    assert from_nothing["verdict"] == "helps" and from_nothing["interval"] == pytest.approx((0.9623, 1.0), abs=1e-3)


def test_before_is_the_first_row_and_after_the_last():
    row = measure(result([0.3, 0.5, 0.9]), "val/greedy/exact/mean")
    assert (row["before"], row["after"], row["episodes"], row["disjoint"]) == (0.3, 0.9, 200, True)


def test_the_interval_of_several_samples_is_the_evaluators_own():
    # 4 samples of each of 50 problems: n counts 200 episodes, and the interval of SuccessRate 50 problems
    run = result([0.3, 0.5], n=200)
    own = {0.3: (0.191, 0.438), 0.5: (0.366, 0.634)}
    for line in run["rows"]:
        if share := line["val/greedy/exact/mean"]:
            low, high = own[float(share)]
            line |= {"val/greedy/exact/lower": str(low), "val/greedy/exact/upper": str(high)}
    actual = measure(run, "val/greedy/exact/mean")
    assert (actual["wilson_before"], actual["wilson_after"]) == (own[0.3], own[0.5])
    assert not actual["disjoint"] and actual["episodes"] == 200
    assert measure(result([0.3, 0.5], n=200), "val/greedy/exact/mean")["disjoint"]  # a problem for each episode


def test_what_is_no_share_has_no_wilson_interval():
    row = measure({"rows": [{"cells": "3"}, {"cells": "17"}], "seconds": 1.0, "seed": 0}, "cells")
    assert (row["before"], row["after"]) == (3, 17) and "wilson_after" not in row


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="fewer than two rows with val/other/mean"):
        measure(result([0.3, 0.9]), "val/other/mean")


def rows(*pairs):
    actual = [{"return_100": str(r), "env_steps": str(s)} for r, s in pairs]
    return {"rows": [{"return_100": "", "env_steps": "1"}, *actual], "seed": 0, "seconds": 1.0}


def test_cost_is_what_was_spent_when_the_level_was_reached():
    run = rows((400, 2), (475, 3), (480, 4))
    assert cost_to_threshold(run, "return_100", 475, "env_steps")["cost"] == 3
    assert cost_to_threshold(run, "return_100", 500, "env_steps")["cost"] is None


def test_a_cost_is_compared_with_the_baselines_and_never_is_all_that_was_spent():
    level = ("return_100", 475, "env_steps")
    plan = experiment(threshold=475, cost="env_steps")
    method = [cost_to_threshold(rows((400, 2), (475, s)), *level) for s in (10, 11, 12)]
    slower = [cost_to_threshold(rows((400, 2), (470, s)), *level) for s in (30, 30, 30)]
    actual = summarise(plan, method, slower)
    # 30 - 10, 30 - 11, 30 - 12
    assert actual["effect_over_baseline"] == pytest.approx(19) and actual["verdict"] == "helps"
    assert summarise(plan, slower, method)["verdict"] == "hurts"
    # two seeds at 10 and 11, one not within its 30: 51 / 3, and not the 10.5 of those that arrived
    mixed = summarise(replace(plan, target={"max_cost": 40}), [*method[:2], slower[0]], None)
    assert mixed["mean_cost"] == 17 and mixed["never_reached"] == 1 and mixed["verdict"] == "no effect at this scale"


def test_verdicts_follow_the_interval_of_the_effect():
    plan = experiment(target={"max_before": 0.5, "min_after": 0.9})
    helps = summarise(plan, seeds((0.3, 0.95), (0.35, 0.93), (0.4, 0.97)), None)
    assert helps["verdict"] == "helps" and helps["target_met"]
    assert not summarise(plan, seeds((0.3, 0.95), (0.35, 0.93), (0.4, 0.8)), None)["target_met"]
    assert summarise(plan, seeds((0.5, 0.6), (0.5, 0.4), (0.5, 0.5)), None)["verdict"] == NOTHING
    assert summarise(plan, seeds((0.5, 0.2), (0.5, 0.21), (0.5, 0.19)), None)["verdict"] == "hurts"


def test_a_gain_is_asked_of_every_seed():
    plan = experiment(target={"max_before": 0.6, "min_gain": 0.25})
    assert summarise(plan, seeds((0.3, 0.6), (0.2, 0.6), (0.5, 0.8)), None)["target_met"]
    assert not summarise(plan, seeds((0.3, 0.6), (0.2, 0.6), (0.5, 0.7)), None)["target_met"]
    assert not summarise(plan, seeds((0.3, 0.6), (0.2, 0.6), (0.65, 0.95)), None)["target_met"]


def test_the_verdict_is_about_the_baseline_where_there_is_one():
    """All runs gain 0.6; seed by seed the method's lead is what counts."""
    start = seeds((0.3, 0.9), (0.3, 0.91), (0.3, 0.92))
    level = summarise(experiment(), start, seeds((0.3, 0.91), (0.3, 0.9), (0.3, 0.92)))
    assert level["effect"] == pytest.approx(0.61) and level["verdict"] == NOTHING
    # leads 0.1, 0.1, 0.1 although the seeds differ
    ahead = summarise(experiment(), start, seeds((0.3, 0.8), (0.3, 0.81), (0.3, 0.82)))
    assert ahead["effect_over_baseline"] == pytest.approx(0.1) and ahead["verdict"] == "helps"
    assert summarise(experiment(), seeds((0.3, 0.8), (0.3, 0.81), (0.3, 0.82)), start)["verdict"] == "hurts"


def parted(before, after):
    """Two tasks of 100 problems each, named in the first row or not."""
    rows = []
    for shares in (before, after):
        row = {"val/mean/success/mean": str(sum(shares) / 2), "val/mean/success/n": "200", "val/mean/tasks/mean": "0.5"}
        for task, share in zip(("push", "reach"), shares):
            row |= {f"val/mean/tasks/{task}/mean": str(share), f"val/mean/tasks/{task}/n": "100"}
        rows.append(row)
    return measure({"rows": rows, "seconds": 1.0, "seed": 0}, "val/mean/success/mean", "val/mean/tasks")


def test_no_task_may_end_below_the_interval_of_its_start():
    # Wilson 95 % of 50 of 100: 0.4038 to 0.5962
    lost, kept = parted((0.2, 0.5), (0.9, 0.40)), parted((0.2, 0.5), (0.9, 0.41))
    assert lost["per_task"]["reach"]["wilson_before"][0] == pytest.approx(0.4038, abs=1e-4)
    assert set(kept["per_task"]) == {"push", "reach"} and kept["per_task"]["push"]["after"] == 0.9
    target = experiment(target={"max_before": 0.5, "min_gain": 0.2})
    assert summarise(target, [kept, kept], None)["target_met"]
    assert not summarise(target, [kept, lost], None)["target_met"]
    with pytest.raises(ConfigError, match="no columns val/other/<task>/mean"):
        measure(result([0.3, 0.9]), "val/greedy/exact/mean", "val/other")


def stored(method, baseline=None):
    """A stored result: what `summarise` computes, and the seeds of both sides."""
    ends = summarise(experiment(), method, baseline)
    return {**ends, "seeds": method, "baseline": "the start" if baseline is None else {"seeds": baseline}}


def test_the_smallest_difference_is_that_of_the_gains_over_the_baseline():
    # leads -0.1, 0, 0.1: standard deviation 0.1; with two degrees of freedom the power of 0.8 is at a noncentrality of
    # 5.653, which tests of the power draw: 0.1 * 5.653 / sqrt(3)
    mixed = stored(seeds((0.3, 0.4), (0.3, 0.5), (0.3, 0.6)), seeds((0.3, 0.5), (0.3, 0.5), (0.3, 0.5)))
    assert smallest_shown(mixed) == pytest.approx(0.3264, abs=1e-4)
    assert describe_verdict(mixed) == "undecided"
    close = stored(seeds((0.3, 0.5), (0.3, 0.51), (0.3, 0.49)), seeds((0.3, 0.5), (0.3, 0.5), (0.3, 0.5)))
    assert smallest_shown(close) == pytest.approx(0.03264, abs=1e-5) and describe_verdict(close) == NOTHING
    # against the start, gains of 0.2, 0.21, 0.19 have the same spread, and help
    risen = stored(seeds((0.3, 0.5), (0.3, 0.51), (0.3, 0.49)))
    assert smallest_shown(risen) == pytest.approx(0.03264, abs=1e-5) and describe_verdict(risen) == "helps"
    assert smallest_shown(stored(seeds((0.3, 0.5)))) is None  # a seed alone has no spread


def test_without_room_for_a_difference_the_verdict_says_so():
    low = seeds((0.0, 0.0), (0.01, 0.02), (0.0, 0.06))
    assert describe_verdict(stored(low, low)).endswith("at its floor")  # 0.027 on both sides on average
    high = seeds((0.97, 0.98), (0.96, 0.97), (0.98, 0.94))
    assert describe_verdict(stored(high)).endswith("at its ceiling")
    assert describe_verdict(stored(high, seeds((0.9, 0.98), (0.9, 0.93), (0.9, 0.93)))) == NOTHING  # 0.947 of baseline


def test_equal_gains_find_what_their_wilson_intervals_leave():
    # the interval of one problem of 64 on each seed, half as wide: times (1.960 + 0.842) / 1.960
    pairs = ((62 / 64, 63 / 64), (63 / 64, 1.0), (62 / 64, 63 / 64))
    equal = stored([measure(result(pair, n=64), "val/greedy/exact/mean") for pair in pairs])
    low, high = equal["interval"]
    assert smallest_shown(equal) == pytest.approx((high - low) / 2 * 2.802 / 1.960, rel=1e-3)


def test_costs_have_no_smallest_difference():
    row = cost_to_threshold(rows((400, 2), (475, 3)), "return_100", 475, "env_steps")
    result = {"seeds": [row, row], "baseline": "the start", "verdict": NOTHING}
    assert smallest_shown(result) is None and describe_verdict(result) == NOTHING
