from itertools import combinations
from math import isnan

import pytest

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.by_info import SuccessRateByInfo
from mmrl.evaluation.metrics.by_task import SuccessRateByTask
from mmrl.evaluation.metrics.means import CompletionLength, MeanReward, MeanScores
from mmrl.evaluation.metrics.pass_at_k import PassAtK, pass_at_k
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.statistics.intervals import wilson


def episode(group=0, ended="done", tokens=3, **scores):
    return Episode(Prompt(f"t/{group}"), group, 0, scores=scores, ended=ended, info={"tokens": tokens})


def test_rate_is_the_share_with_its_interval():
    result = SuccessRate()([episode(i, exact=float(i < 95)) for i in range(100)])
    assert result.pop("mean") == 0.95 and result.pop("n") == 100 and result.pop("errors") == 0
    assert {name: round(end, 3) for name, end in result.items()} == {"lower": 0.888, "upper": 0.978}


def test_rate_counts_prompts_in_the_interval_of_repeated_samples():
    # 10 prompts, 8 samples each, always the same result: as uncertain as 10 samples, not as 80
    result = SuccessRate("success")([episode(i % 10, success=float(i % 10 < 6)) for i in range(80)])
    assert result["mean"] == pytest.approx(0.6) and result["n"] == 80
    assert (result["lower"], result["upper"]) == pytest.approx(wilson(6, 10))


@pytest.mark.parametrize("ended", ["done", "length", "time", "cut"])
def test_failures_are_reported_not_scored(ended):
    episodes = [episode(0, exact=1.0, ended=ended), episode(1, exact=0.0, ended=ended), episode(2, ended="error")]
    result = SuccessRate()(episodes)
    assert (result["mean"], result["n"], result["errors"]) == (0.5, 2, 1)
    assert MeanScores()(episodes) == {"exact": 0.5, "errors": 1}
    assert CompletionLength()(episodes)["errors"] == 1


def test_the_mean_reward_has_its_standard_error():
    episodes = [episode(i, ended="error" if i == 4 else "done") for i in range(5)]
    for each, reward in zip(episodes, (0.0, 0.0, 2.0, 2.0, 9.0)):
        each.reward = reward
    result = MeanReward()(episodes)  # std sqrt(4 / 3) of four finished episodes
    assert result == pytest.approx({"mean": 1.0, "standard_error": 3**-0.5, "n": 4, "errors": 1})
    assert isnan(MeanReward()(episodes[:1])["standard_error"]) and isnan(MeanReward()(episodes[4:])["mean"])


def test_only_failures_measure_nothing():
    result = SuccessRate()([episode(ended="error")])
    assert isnan(result["mean"]) and (result["lower"], result["upper"]) == (0, 1)
    assert (result["n"], result["errors"]) == (0, 1)
    assert isnan(CompletionLength()([episode(ended="error")])["mean"])
    assert isnan(PassAtK()([episode(ended="error")])["pass@1"])


def test_unknown_scores_are_refused_with_those_there_are():
    with pytest.raises(KeyError, match=r"no score 'exakt' in the episode of 't/0'; it has \['exact', 'format'\]"):
        SuccessRate("exakt")([episode(exact=1.0, format=1.0)])
    with pytest.raises(KeyError, match=r"no score 'success' .*it has \['exact'\]"):
        PassAtK(score_name="success")([episode(exact=1.0)])


def test_rate_refuses_a_score_that_is_not_binary():
    with pytest.raises(ValueError, match=r"'tiles' of 't/0' is 0\.25, neither 0 nor 1; measure it with MeanScores"):
        SuccessRate("tiles")([episode(tiles=0.25)])


@pytest.mark.parametrize("evaluator", [SuccessRate(), MeanScores(), CompletionLength(), PassAtK()])
def test_nothing_to_evaluate_is_refused(evaluator):
    with pytest.raises(ValueError, match="no episodes to evaluate"):
        evaluator([])


def test_mean_scores():
    result = MeanScores()([episode(exact=1.0, tiles=1.0), episode(exact=0.0, tiles=0.25)])
    assert result == {"exact": 0.5, "tiles": 0.625, "errors": 0}
    with pytest.raises(KeyError, match="no score 'tiles'"):
        MeanScores()([episode(exact=1.0, tiles=1.0), episode(exact=0.0)])


def test_tokens():
    result = CompletionLength()(
        [episode(tokens=2), episode(tokens=6, ended="length"), episode(tokens=1), episode(tokens=3)]
    )
    assert result == {"mean": 3.0, "truncated_fraction": 0.25, "errors": 0}
    with pytest.raises(KeyError, match=r"Episode\.light"):
        CompletionLength()([Episode(Prompt("t/0"), 0, 0)])


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one():
    for n in range(1, 7):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations([True] * c + [False] * (n - c), k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_over_prompts():
    # prompt 0: 1 of 4 right, prompt 1: 3 of 4. pass@1 = (1/4 + 3/4) / 2; pass@2 = (1 - 3/6 + 1 - 0/6) / 2
    episodes = [episode(0, exact=float(i < 1)) for i in range(4)] + [episode(1, exact=float(i < 3)) for i in range(4)]
    result = PassAtK(ks=[2, 1])(episodes)
    assert (result["pass@1"], result["pass@2"], result["prompts"], result["errors"]) == (0.5, 0.75, 2, 0)
    assert (result["pass@2_lower"], result["pass@2_upper"]) == pytest.approx(wilson(1.5, 2))


def test_pass_at_k_without_enough_samples():
    episodes = [episode(0, exact=1.0), episode(0, ended="error"), episode(1, exact=1.0), episode(1, exact=0.0)]
    result = PassAtK(ks=(1, 2))(episodes)  # prompt 0 has one finished sample: in pass@1, not in pass@2
    assert (result["pass@1"], result["pass@2"], result["prompts"], result["errors"]) == (0.75, 1.0, 1, 1)
    with pytest.raises(ValueError, match=r"pass@4 needs 4 samples per prompt, 't/0' has 2"):
        PassAtK(ks=(4,))(episodes)
    with pytest.raises(ValueError, match=r"evaluator\.ks"):
        PassAtK(ks=(0,))
    with pytest.raises(ValueError, match=r"got n=2, c=3, k=1"):
        pass_at_k(2, 3, 1)


def test_rates_task_by_task_count_every_task_once():
    def episode(i: int, task: str, success: float) -> Episode:
        prompt = Prompt(f"suite/held_out/{i}", info={"task": task})
        return Episode(prompt, group=i, sample_index=0, scores={"success": success})

    episodes = [episode(0, "push", 1), episode(1, "push", 0), episode(2, "reach", 1)]
    numbers = SuccessRateByTask()(episodes)
    assert numbers["push/mean"] == 0.5 and numbers["reach/mean"] == 1.0 and numbers["mean"] == 0.75
    assert numbers["push/n"] == 2 and numbers["push/lower"] == pytest.approx(wilson(1, 2)[0])


def test_rates_per_value_of_a_column_in_its_order():
    problems = [Prompt(f"t/{i}", info={"length": 10 if i < 4 else 9}) for i in range(6)]
    episodes = [Episode(each, i, 0, scores={"exact": float(i in (0, 4, 5))}) for i, each in enumerate(problems)]
    result = SuccessRateByInfo("length")(episodes)
    assert (result["10/mean"], result["9/mean"], result["10/n"], result["9/n"]) == (0.25, 1, 4, 2)
    assert next(iter(result)).startswith("9/")  # numbers are sorted as numbers
    with pytest.raises(KeyError, match=r"no info 'turns'; it has \['length'\]"):
        SuccessRateByInfo("turns")(episodes)
