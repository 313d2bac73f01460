"""Metrics of reward models, by hand and by brute force."""

import itertools
import math

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.best_of_n import BestOfN, best_of_n
from mmrl.evaluation.metrics.calibration import Calibration
from mmrl.evaluation.metrics.sections import AccuracyBySection


def pair(margin, subset=None, number=0):
    info = {} if subset is None else {"subset": subset}
    scores = {"margin": margin, "right": float(margin > 0)}
    return Episode(Prompt(f"p/held_out/{number}", info=info), number, 0, scores=scores)


def logit(p):
    return math.log(p / (1 - p))


def test_calibration_by_hand():
    # confidence 0.7 in a bin of [0.7, 0.75) with 3 of 4 right, and 0.9 with 1 of 2: 4/6 * 0.05 + 2/6 * 0.4 = 1/6
    margins = [logit(0.7001)] * 3 + [-logit(0.7001)] + [logit(0.9001), -logit(0.9001)]
    metrics = Calibration()([pair(margin, number=n) for n, margin in enumerate(margins)])
    assert metrics["ece"] == pytest.approx(4 / 6 * 0.0499 + 2 / 6 * 0.4001)
    assert metrics["confidence"] == pytest.approx((4 * 0.7001 + 2 * 0.9001) / 6)
    nll = -(3 * math.log(0.7001) + math.log(0.2999) + math.log(0.9001) + math.log(0.0999)) / 6
    assert metrics["nll"] == pytest.approx(nll)
    assert metrics["brier"] == pytest.approx((3 * 0.2999**2 + 0.7001**2 + 0.0999**2 + 0.9001**2) / 6)


def test_calibration_of_large_margins_is_finite():
    metrics = Calibration()([pair(1e4), pair(-1e4, number=1)])
    assert metrics["nll"] == pytest.approx(5e3) and metrics["ece"] == pytest.approx(0.5)


def test_best_of_n_is_the_mean_over_all_choices():
    proxy, gold = [0.3, 2.0, -1.0, 2.0, 0.5], [1.0, 0.0, 4.0, 3.0, 2.0]
    for n in range(1, 6):
        values = []
        for chosen in itertools.combinations(range(5), n):
            top = max(proxy[i] for i in chosen)
            tied = [i for i in chosen if proxy[i] == top]
            values.append(sum(gold[i] for i in tied) / len(tied))
        assert best_of_n(proxy, gold, n) == pytest.approx(sum(values) / len(values))
    with pytest.raises(ValueError, match="1 <= n <= N"):
        best_of_n(proxy, gold, 6)


def test_best_of_n_over_prompts():
    rows = [([1.0, 2.0], [0.0, 1.0]), ([1.0, 2.0], [5.0, 3.0])]
    episodes = [
        Episode(Prompt(f"p/held_out/{g}"), g, i, scores={"gold": gold, "rm": proxy})
        for g, (proxies, golds) in enumerate(rows)
        for i, (proxy, gold) in enumerate(zip(proxies, golds))
    ]
    metrics = BestOfN(proxy="rm", ns=(1, 2, 4))(episodes)
    assert (metrics["gold@1"], metrics["gold@2"], metrics["oracle@2"]) == (2.25, 2.0, 3.0)
    assert metrics["proxy@2"] == 2.0 and "gold@4" not in metrics


def test_sections_are_weighed_as_reward_bench_does():
    # Reasoning: code 1 of 2 with weight 164, mathematics 1 of 1 with 984; Chat: 0 of 1
    episodes = [pair(1, "hep-go", 0), pair(-1, "hep-go", 1), pair(1, "math-prm", 2), pair(-1, "mt-bench-med", 3)]
    metrics = AccuracyBySection()([*episodes, pair(1, "mine", 4)])
    reasoning = (164 * 0.5 + 984) / (164 + 984)
    assert metrics["section/Reasoning"] == pytest.approx(reasoning) and metrics["section/Chat"] == 0
    assert metrics["score"] == pytest.approx(reasoning / 2)
    assert metrics["mine/mean"] == 1 and metrics["hep-go/n"] == 2
    assert AccuracyBySection()([pair(1)]) == {"errors": 0.0}
