"""pass^k against every choice of k samples, and votes among accepted samples by hand."""

from itertools import combinations
from math import isnan

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.pass_at_k import PassAtK, Reliability, pass_hat_k
from mmrl.evaluation.metrics.vote import FilteredVote
from mmrl.evaluation.statistics.intervals import wilson


def episode(group, answer="", ended="done", **scores):
    return Episode(Prompt(f"t/{group}"), group, 0, scores=scores, ended=ended, info={"answer": answer, "tokens": 1})


@pytest.mark.parametrize("n", [1, 4, 6])
def test_all_of_k_is_the_share_of_choices_without_a_wrong_sample(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            choices = list(combinations([1] * c + [0] * (n - c), k))
            assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, choices)) / len(choices))
    with pytest.raises(ValueError, match=r"pass\^k needs"):
        pass_hat_k(n, n + 1, 1)


def test_reliability_falls_where_pass_at_k_rises():
    # four samples of three prompts, 4, 2 and 0 right: pass^2 is (1 + 1/6 + 0) / 3
    episodes = [episode(g, exact=float(i < c)) for g, c in enumerate((4, 2, 0)) for i in range(4)]
    metrics = Reliability([1, 2, 4])(episodes)
    assert (metrics["pass^1"], metrics["pass^2"]) == (pytest.approx(0.5), pytest.approx(7 / 18))
    assert metrics["pass^4"] == pytest.approx(1 / 3) and metrics["prompts"] == 3
    assert (metrics["pass^2_lower"], metrics["pass^2_upper"]) == pytest.approx(wilson(7 / 6, 3, 0.95))
    at = PassAtK([1, 2, 4])(episodes)
    assert at["pass@1"] == pytest.approx(metrics["pass^1"]) and at["pass@4"] > at["pass@1"] > metrics["pass^4"]
    assert Reliability([1, 4]).against(episodes, episodes) == {"crossing": 1.0}
    with pytest.raises(ValueError, match=r"pass\^5 needs 5 samples per prompt"):
        Reliability([5])(episodes)


def test_only_accepted_samples_vote():
    # answers 7 7 7 5 5, the two fives and one seven accepted; 5 is right
    rows = [("7", 0, 0), ("7", 0, 0), ("7", 0, 1), ("5", 1, 1), ("5", 1, 1)]
    episodes = [episode(0, answer, exact=float(right), format=float(ok)) for answer, right, ok in rows]
    metrics = FilteredVote()(episodes)
    assert (metrics["mean"], metrics["majority"], metrics["accepted"]) == (1, 0, 0.6)
    assert (metrics["precision"], metrics["recall"], metrics["n"]) == (pytest.approx(2 / 3), 1, 1)


def test_without_an_accepted_sample_all_vote_and_errors_do_not():
    rows = [("7", 1), ("5", 0), ("7", 1)]
    episodes = [episode(0, answer, exact=float(right), format=0.0) for answer, right in rows]
    episodes += [episode(0, "5", ended="error") for _ in range(5)]
    metrics = FilteredVote()(episodes)
    assert (metrics["mean"], metrics["majority"], metrics["errors"]) == (1, 1, 5) and isnan(metrics["precision"])


def test_an_extracted_answer_votes_in_place_of_the_completion():
    episodes = [episode(0, f"thought {i}", exact=float(x == "2"), format=1.0) for i, x in enumerate("122")]
    for each, extracted in zip(episodes, "122"):
        each.info["extracted"] = extracted
    assert FilteredVote()(episodes)["mean"] == 1
    episodes[0].info.clear()
    with pytest.raises(KeyError, match="has no answer in words"):
        FilteredVote()(episodes)
    with pytest.raises(KeyError, match="no score 'accept'"):
        FilteredVote("accept")(episodes)
