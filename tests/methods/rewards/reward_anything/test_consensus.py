"""RewardAnything: consensus of judges and the penalty of reversed pairs by hand, and the reward of replies."""

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.methods.rewards.reward_anything.consensus import (
    ConsensusReward,
    find_consensus,
    rank_grades,
    reversed_gaps,
)
from mmrl.rewards.judges.base import LanguageJudge
from mmrl.rewards.judges.graded import SheetGrader
from mmrl.rewards.judges.questions import Reply
from tasks.grammar import Grammar
from tasks.judgements import Judgements
from tasks.judgements.grader import PrincipleGrader
from tests.tasks.replies import reply

TASK = Judgements(candidates=3, ranked=True)
WEIGHTS = {"consensus_tau": 1.0, "consensus_match": 1.0, "reversed_gaps": -1.0}


def test_a_consensus_by_hand():
    """Three of four judges rank 1 > 2 > 3: means (5 + 4 + 5) / 3, (3 + 2 + 4) / 3, (1 + 1 + 2) / 3."""
    verdicts = [[5, 3, 1], [4, 2, 1], [1, 3, 5], [5, 4, 2]]
    assert rank_grades([5, 3, 3, 1]) == (0, 1, 1, 2)
    assert find_consensus(verdicts, 3) == pytest.approx([14 / 3, 3, 4 / 3])
    assert find_consensus(verdicts, 4) is None
    # a tie is another ranking, and two of two readable judges are too few
    assert find_consensus([[5, 3, 1], [5, 3, 3], [4, 2, 1]], 3) is None
    assert find_consensus(verdicts[:2], 3) is None and find_consensus([], 1) is None


@pytest.mark.parametrize(
    "grades, penalty",
    [
        ([5, 3, 1], 0.0),
        ([5, 1, 3], 2 / 8),  # the gaps of 5, 3, 1 are 2, 2 and 4; the pair 3 > 1 is reversed
        ([3, 5, 1], 2 / 8),
        ([1, 3, 5], 1.0),
        ([1, 5, 3], 6 / 8),  # 5 > 3 and 5 > 1
        ([2, 2, 2], 0.0),  # a tie is not reversed
    ],
)
def test_reversed_gaps_by_hand(grades, penalty):
    assert reversed_gaps(grades, [5, 3, 1]) == penalty


def test_equal_references_have_no_penalty():
    assert reversed_gaps([5, 1], [3, 3]) == 0.0


class Fixed(LanguageJudge):
    """Judge with one reply to every question."""

    def __init__(self, text):
        super().__init__()
        self.text, self.asked = text, 0

    def reply(self, questions):
        self.asked += len(questions)
        return [Reply(self.text) for _ in questions]


def reward_of(*texts, **options):
    judges = {f"judge_{i}": Fixed(text) for i, text in enumerate(texts)}
    return ConsensusReward(judges, WEIGHTS, PrincipleGrader(ranked=True), **options)


def scored(reward, *texts):
    """Rewards and scores of replies to one prompt."""
    group = [reply(TASK[0], text) for text in texts]
    for episode, scores in zip(group, reward.scores(group)):
        episode.scores = scores
    return list(reward(group)), group


def test_rewards_by_hand():
    """The reference is 5, 3, 1. 5 3 1: tau 1, match 1. 5 1 3: tau 1/3, distance 4/3 of 4, penalty 2/8."""
    reward = reward_of("531:123", "531:123", "531:123", "135:321")
    rewards, group = scored(reward, "531:123", "513:132", "135:321", "531:321", "53")
    assert rewards[0] == 2.0
    assert rewards[1] == pytest.approx(1 / 3 + (1 - 4 / 3 / 4) - 2 / 8)
    assert rewards[2] == pytest.approx(-1 + (1 - 8 / 3 / 4) - 1)
    assert rewards[3:] == [0.0, 0.0]  # the ranking contradicts the grades; unreadable
    assert all(episode.scores["agreed"] == 1 for episode in group)
    assert all(judge.asked == 1 for judge in reward.judges.values())  # once for a prompt
    assert group[0].info["counts"] == {"consensus_prompts": 1, "consensus_agreements": 1, "consensus_unreadable": 0}


def test_nothing_is_paid_without_consensus():
    rewards, group = scored(reward_of("531:123", "531:123", "135:321", "no"), "531:123", "135:321")
    assert rewards == [0.0, 0.0] and group[0].scores["agreed"] == 0
    assert group[0].info["counts"]["consensus_unreadable"] == 1
    assert scored(reward_of("531:123", "531:123", "135:321", "no", agreeing=2), "531:123")[0] == [2.0]


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="agreeing"):
        reward_of("531:123", agreeing=2)
    reward_of("531:123", agreeing=1).check_task(TASK)
    with pytest.raises(ConfigError, match="answers"):
        reward_of("531:123", agreeing=1).check_task(Grammar())
    with pytest.raises(ConfigError, match="principle"):
        PrincipleGrader().ask(reply(Grammar()[0], ""), ["ba"])


def test_an_unknown_judge_is_refused_before_the_run():
    words = ("recipe=reward_anything_judge", "data.reward.judges.judge_1.model=other")
    with pytest.raises(ConfigError, match=r"EngineJudge of data samples from \['other'\]"):
        CLI(to_lightning(compose([*words, "trainer.callbacks.warm_start.stages=null"])))


def test_grades_are_asked_for_by_default_and_ranks_with_them():
    grader = ConsensusReward({"judge": Fixed("")}, WEIGHTS, agreeing=1).grader
    assert isinstance(grader, SheetGrader) and (grader.low, grader.high, grader.ranked) == (1, 5, True)


def test_a_reward_is_foreign_unless_all_its_judges_are_of_the_run():
    reward = reward_of("531:123", "531:123", agreeing=1)
    assert reward.foreign
    for judge, foreign in zip(reward.judges.values(), (True, False)):
        judge.of_run = True
        assert reward.foreign is foreign
