"""The arms of the study by hand, a wrong answer as the label, and how aligned a policy and a task are."""

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Prompt, Sampling, Turn
from mmrl.evaluation.metrics.pass_at_k import pass_at_k
from mmrl.experiments.comparison import read_comparison
from mmrl.methods.problems.model_task_alignment import (
    ARMS,
    ArmAdvantages,
    ArmProblems,
    ArmReward,
    WrongMajority,
    match_majority,
)
from mmrl.rollouts.text.scripted import scripted_episode
from tests.laws.example import Example

LAWS = [Example(ArmAdvantages("positive")), Example(ArmAdvantages("negative"))]


def rewards(answers, right="r", reward=None):
    group = [scripted_episode(Prompt("toy/train/0"), answer) for answer in answers]
    for episode in group:
        episode.scores = {"exact": float(episode.output == right)}
    return (reward or WrongMajority({}))(group)


def test_the_most_frequent_wrong_answer_is_the_label():
    assert rewards("rrrabb") == [0, 0, 0, 0, 1, 1]  # the right answer is more frequent, and has no reward
    assert rewards("rabc") == [0, 1, 0, 0]  # the first of a tie
    assert rewards("rrrr") == [0, 0, 0, 0]
    assert rewards("rrab", reward=WrongMajority({"exact": 0.5})) == [0.5, 0.5, 1, 0]
    assert rewards(["", "", "a", "r"]) == [0, 0, 1, 0]  # no answer is no label


def test_the_most_frequent_answer_is_that_of_completions_that_are_counted():
    group = [scripted_episode(Prompt("toy/train/0"), answer) for answer in ("a", "a", "b", "b", "b", "")]
    counted = [True, True, True, False, False, True]
    assert match_majority(group, "text", counted) == [1, 1, 0, 0, 0, 0]  # a twice, b once
    assert match_majority(group[:3], "text", [True, False, False]) == [1, 0, 0]  # the second a is not counted
    assert match_majority(group[5:], "text", [True]) == [0]  # that both are none is no match


def test_the_answer_is_extracted():
    out = rewards(["it is 5", "5", "6", "7"], "7", WrongMajority({}, extract="last_number"))
    assert out == [1, 1, 0, 0]
    with pytest.raises(ValueError, match="no extractor"):
        WrongMajority({}, extract="none")
    with pytest.raises(ValueError, match="score of the task"):
        WrongMajority({}, score_name="reward")
    with pytest.raises(KeyError, match="neither 'reward' nor a score"):
        rewards("ab", reward=WrongMajority({}, score_name="solved"))


def test_alignment_is_the_pass_rate_of_the_start():
    # 1 - C(6, 4) / C(8, 4) = 1 - 15 / 70
    assert pass_at_k(8, 2, 4) == pytest.approx(1 - 15 / 70) == pytest.approx(0.785714, abs=1e-6)
    assert pass_at_k(8, 0, 4) == 0 and pass_at_k(8, 8, 4) == 1


def arm(name, answers="rraab", form=None):
    """Rewards of an arm for answers of which r is right; all have the form but those of `form`."""
    group = [scripted_episode(Prompt("toy/train/0"), answer) for answer in answers]
    for i, episode in enumerate(group):
        episode.sample_index = i
        episode.scores = {"exact": float(episode.output == "r"), "format": float(episode.output != form)}
    return list(ArmReward({"exact": 1.0}, name)(group))


def test_the_reward_of_every_arm_by_hand():
    for name in ("ground_truth", "one_shot", "positive", "negative"):
        assert arm(name) == [1, 1, 0, 0, 0]
    assert arm("wrong") == [0, 0, 1, 1, 0]
    assert arm("majority") == [1, 1, 0, 0, 0] and arm("majority", "raaab") == [0, 1, 1, 1, 0]  # two of a tie: the first
    assert arm("format", form="b") == [1, 1, 1, 1, 0]
    drawn = arm("random", "r" * 400)
    assert set(drawn) == {0, 1} and 150 < sum(drawn) < 250 and drawn == arm("random", "a" * 400)


def test_certainty_is_the_mean_log_prob_of_what_the_policy_chose():
    """Log-probs -1, -2 and a forced token, -9: the mean of the first two is -1.5; without a token it is 0."""
    episode, empty = (scripted_episode(Prompt("toy/train/0"), "a") for _ in range(2))
    mask = torch.tensor([True, True, False])
    row = Completion({}, torch.zeros(3, dtype=torch.long), torch.tensor([-1.0, -2.0, -9.0]), mask, "a")
    episode.turns, empty.turns = [Turn(row)], []
    assert ArmReward({}, "entropy")([episode, empty]) == [-1.5, 0.0]


@pytest.mark.parametrize("name", ARMS)
def test_two_arms_keep_one_sign_of_the_advantages(name):
    # A = [1, -1, 0]
    kept = {"positive": [1, 0, 0], "negative": [0, -1, 0]}.get(name, [1, -1, 0])
    columns = {"advantages": torch.tensor([[1.0], [-1.0], [0.0]]), "action_mask": torch.ones(3, 1, dtype=torch.bool)}
    batch = Batch(columns)
    assert ArmAdvantages(name)(batch, None)["advantages"].flatten().tolist() == kept


@pytest.mark.parametrize("name", ["ground_truth", "positive"])
def test_forced_choices_have_no_advantage(name):
    batch = Batch(advantages=torch.tensor([[2.0, 3.0]]), action_mask=torch.tensor([[True, False]]))
    assert ArmAdvantages(name)(batch, None)["advantages"].tolist() == [[2, 0]]


def test_one_arm_has_one_problem():
    ctx = Context([0] * 6, None, None, Sampling(), seed=0, iteration=0)
    assert ArmProblems("one_shot", problem=4).select(3, ctx) == [4, 4, 4]
    assert sorted(ArmProblems("ground_truth").select(6, ctx)) == [0, 1, 2, 3, 4, 5]


def test_a_name_that_is_no_arm_is_refused():
    for build in (lambda name: ArmReward({}, name), ArmAdvantages, ArmProblems):
        with pytest.raises(ValueError, match=r"arm must be one of ground_truth, random, .*, negative, got 'honest'"):
            build("honest")
    with pytest.raises(ValueError, match="not the reward itself"):
        ArmReward({}, score_name="reward")


def test_the_comparison_has_every_arm_by_both_starts():
    study = read_comparison("model_task_alignment")
    arms = {word.split("=")[1] for words in study.methods.values() for word in words if ".arm.arm=" in word}
    assert arms == set(ARMS) and set(study.tasks) == {"warm", "cold"}
    stages = {name: next(w for w in task.overrides if "stages" in w) for name, task in study.tasks.items()}
    assert "0.04" in stages["cold"] and "threshold" not in stages["warm"]
