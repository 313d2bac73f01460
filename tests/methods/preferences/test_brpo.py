"""BRPO: wins over the bootstrapped reference and the skew of groups, by hand."""

from dataclasses import replace

import pytest

from mmrl.core.errors import ConfigError
from mmrl.core.types import Collector, Context, Episode, Sampling
from mmrl.methods.preferences.brpo import (
    BalancedGroups,
    BootstrappedReference,
    BothOrders,
    PositionWeightedSum,
    _Pairs,
    position_weight,
    skew,
)
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Reply
from mmrl.rewards.judges.reward import JudgeReward
from tasks.grammar import Grammar
from tasks.judgements import Judgements
from tasks.judgements.grader import PrincipleGrader
from tasks.judgements.principles import grade
from tests.tasks.replies import reply

TASK = Grammar(levels=[0], refusals=0.0)
ANSWERS = ["babi", "kaki", "bibiba", "dedada"]  # one b, none, three, none


def group_of(answers):
    return [reply(TASK[0], answer) for answer in answers]


def with_reference(group, reference):
    """The group with a prompt of which this answer is picked."""
    for index in range(200):
        for episode in group:
            episode.prompt = TASK[index]
        if BootstrappedReference().pick(group) == reference:
            return group
    raise AssertionError("no prompt picks the answer")


def scores(form, group, verdicts):
    return [result["judge"] for result in form.combine(group, verdicts)]


def test_the_numbers_by_hand():
    """Grades 7.5, 6, 8, 6 with the second answer as the reference: 7.5 > 6, itself, 8 > 6, 6 not > 6; |1| / 4."""
    group = with_reference(group_of(ANSWERS), 1)
    form = BootstrappedReference(both_orders=False)
    assert scores(form, group, [[7.5, 6], [8, 6], [6, 6]]) == [1, 0, 1, -1]
    assert skew([1, 0, 1, -1]) == 0.25
    # all grades equal: no answer wins, and the skew 3 / 4 is that of a group to leave out
    assert scores(form, group, [[6, 6]] * 3) == [-1, 0, -1, -1] and skew([-1, 0, -1, -1]) == 0.75
    assert scores(BootstrappedReference(both_orders=False, neutral=True), group, [[6, 6]] * 3) == [0] * 4


def test_a_win_needs_both_orders():
    group = with_reference(group_of(ANSWERS[:2]), 1)
    both, neutral = BootstrappedReference(), BootstrappedReference(neutral=True)
    for verdicts, plain, softened in (
        ([[7, 5], [5, 7]], 1, 1),
        ([[7, 5], [7, 5]], -1, 0),  # the first place wins twice
        ([[5, 7], [7, 5]], -1, -1),
    ):
        assert scores(both, group, verdicts) == [plain, 0] and scores(neutral, group, verdicts) == [softened, 0]
    assert both.count([[7, 5], [5, 7]]) == {"inconsistent": 0} and both.count([[7, 5], [7, 5]]) == {"inconsistent": 1}
    assert scores(both, group[:1], []) == [0.0]


def test_orders_are_inconsistent_whose_leads_have_different_signs():
    """Leads (0, 0) and (-2, -2) agree, (0, 2) and (-2, 0) do not, and a pair without a verdict is not counted."""
    lost = NoAnswer("late")
    for pair, inconsistent in (
        ([[6, 6], [6, 6]], 0),
        ([[5, 7], [7, 5]], 0),
        ([[6, 6], [5, 7]], 1),
        ([[5, 7], [6, 6]], 1),
        ([[7, 5], lost], 0),
        ([lost, lost], 0),
    ):
        assert BootstrappedReference().count(pair) == {"inconsistent": inconsistent}
    assert BootstrappedReference(both_orders=False).count([[6, 6]]) == {}


def test_an_answer_without_a_verdict_is_no_loss():
    group = with_reference(group_of(ANSWERS), 1)
    lost = NoAnswer("late")
    results = BootstrappedReference().combine(group, [[7, 5], lost, [7, 5], [5, 7], [5, 7], [7, 5]])
    assert results == [lost, {"judge": 0.0}, {"judge": 1.0}, {"judge": -1.0}]


def test_every_answer_is_the_reference_alike():
    """200 prompts, four answers: 50 each, standard deviation 6.1."""
    group, counts = group_of(ANSWERS), [0] * 4
    for index in range(200):
        for episode in group:
            episode.prompt = TASK[index]
        counts[BootstrappedReference().pick(group)] += 1
    assert all(25 < count < 75 for count in counts)


class RightJudge(LanguageJudge):
    """Replies with the right grades, of which the first place has one more where it can."""

    def reply(self, questions):
        replies = []
        for question in questions:
            principle, *answers = question.text.removesuffix("?").split()
            grades = [grade(principle, answer) for answer in answers]
            replies.append(Reply(f"{min(grades[0] + 1, 5)}{grades[1]}"))
        return replies


def test_both_orders_undo_a_judge_that_prefers_the_first_place():
    """b counts 1, 0, 3, 0 are grades 2, 1, 4, 1; against the last answer the second one ties and wins by its place."""
    group = with_reference(group_of(ANSWERS), 3)
    for both, second in ((True, -1.0), (False, 1.0)):
        form = BootstrappedReference(PrincipleGrader("+b"), both_orders=both)
        results = JudgeReward(RightJudge(), form, {"judge": 1.0}).scores(group)
        assert [result["judge"] for result in results] == [1.0, second, 1.0, 0.0]


def test_skewed_groups_are_replaced():
    class Further(Collector):
        def collect_prompts(self, count):
            return [Episode(TASK[9], 9, i, reward=r) for i, r in enumerate((1, -1, 0, 0))][: 4 * count]

    def context():
        return Context(TASK, None, None, Sampling(), seed=0, iteration=0, collector=Further())

    rewards = {0: (1, 0, 1, -1), 1: (-1, 0, -1, -1), 2: (0, 0, 0, 0)}
    episodes = [Episode(TASK[g], g, i, reward=r) for g, group in rewards.items() for i, r in enumerate(group)]
    balanced = BalancedGroups(num_groups=2, max_skew=0.5)(episodes, context())
    assert sorted({episode.group for episode in balanced}) == [0, 9]
    assert {e.group for e in BalancedGroups(num_groups=2, max_skew=0.75)(episodes, context())} == {0, 1}


@pytest.mark.parametrize("wrong", [{"max_skew": 1.5}, {"max_skew": -0.1}, {"max_rounds": -1}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ValueError):
        BalancedGroups(**wrong)


ORDERS = Judgements(both_orders=True, reasons=True)
WEIGHTS = {"accuracy": 1.0, "format": 0.2, "margin": 0.2}


def test_position_weights_by_hand():
    """All of four replies are right in one order and one of four in the other: 1 - (1 - 1/4), 1 - (1/4 - 1)."""
    assert position_weight(1.0, 0.25, 1.0) == 0.25 and position_weight(0.25, 1.0, 1.0) == 1.75
    assert position_weight(1.0, 0.25, 0.5) == 0.625 and position_weight(0.5, 0.5, 1.0) == 1.0


def verdicts_of(accuracies):
    """Four replies to each problem with these accuracies, readable and without a margin."""
    return [
        Episode(ORDERS[index], index, i, scores={"accuracy": accuracy, "format": 1.0, "margin": 0.0})
        for index, each in accuracies.items()
        for i, accuracy in enumerate(each)
    ]


def test_a_right_verdict_of_the_preferred_place_is_paid_less():
    """0 and 1 are a pair: 1 of 4 and 4 of 4 are right, weights 1.75 and 0.25; of 2 the other order is not there."""
    episodes = verdicts_of({0: (1, 0, 0, 0), 1: (1, 1, 1, 1), 2: (1, 0, 0, 0)})
    reward = PositionWeightedSum(WEIGHTS)
    for episode, further in zip(episodes, reward.scores(episodes)):
        episode.scores |= further
    assert [e.scores["position_bias"] for e in episodes] == [0.75] * 8 + [0.0] * 4
    assert reward(episodes[:4]) == pytest.approx([1.95, 0.2, 0.2, 0.2])
    assert reward(episodes[4:8]) == pytest.approx([0.45] * 4)
    assert reward(episodes[8:]) == pytest.approx([1.2, 0.2, 0.2, 0.2])
    # strength 0: no weight
    plain = PositionWeightedSum(WEIGHTS, strength=0.0)
    assert {each["position_weight"] for each in plain.scores(verdicts_of({0: (1, 0), 1: (1, 1)}))} == {1.0}


def test_several_prompts_of_the_other_order_count_by_their_mean():
    """Group 0 is always right, 1 and 2, both in the other order, in 1/4 and 3/4: 1 - (1 - 1/2), 1 - (1/4 - 1)."""
    episodes = verdicts_of({0: (1, 1, 1, 1), 1: (1, 0, 0, 0), 3: (1, 1, 1, 0)})
    for episode in episodes[8:]:
        episode.prompt = ORDERS[1]
    weights = [each["position_weight"] for each in PositionWeightedSum(WEIGHTS).scores(episodes)]
    assert weights == [0.5] * 4 + [1.75] * 4 + [1.25] * 4


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_both_orders_come_to_one_process(world_size):
    ctx = Context(ORDERS, None, None, Sampling(), seed=0, iteration=0, world_size=world_size)
    selected = BothOrders().select(16, ctx)
    assert len(set(selected)) == 16
    for rank in range(world_size):
        mine = selected[rank::world_size]
        assert {index ^ 1 for index in mine} == set(mine)


def test_pairs_go_on_after_a_resume():
    def context(iteration):
        return Context(ORDERS, None, None, Sampling(), seed=0, iteration=iteration)

    first, second = BothOrders(), BothOrders()
    drawn = first.select(8, context(0))
    second.load_state_dict(first.state_dict())
    assert first.select(8, context(1)) == second.select(8, context(1)) != drawn


class Few(list):
    """The problems of a task."""

    name = "few"


def test_single_orders_are_refused():
    with pytest.raises(ConfigError, match="both_orders"):
        PositionWeightedSum(WEIGHTS).check_task(Judgements())
    PositionWeightedSum(WEIGHTS).check_task(ORDERS)
    with pytest.raises(ConfigError, match="both_orders"):
        PositionWeightedSum(WEIGHTS).check_task(Few([ORDERS[0]]))
    PositionWeightedSum(WEIGHTS).check_task(Few([ORDERS[0], ORDERS[1], replace(ORDERS[2], info={})]))
    assert [_Pairs(ORDERS)[index].key for index in (0, 3)] == [ORDERS[0].key, ORDERS[6].key]
    with pytest.raises(ConfigError, match="has no weight"):
        PositionWeightedSum({"format": 1.0})
    with pytest.raises(ValueError, match="strength"):
        PositionWeightedSum(WEIGHTS, strength=2.0)
