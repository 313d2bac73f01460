"""CycleAlign: agreements and the loss by hand, the pool of examples, and a judge that errs less with good examples."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Sampling, Turn
from mmrl.methods.guidance.cycle_align import (
    CycleAlign,
    CycleAlignLoss,
    DemonstratedRanking,
    JudgeOrder,
    RankedExample,
    find_agreement,
    order_by_likelihood,
)
from mmrl.rewards.judges.questions import Reply, Unreadable
from mmrl.rewards.judges.scripted import ScriptedJudge
from mmrl.rewards.scoring import score
from tasks.arithmetic import Arithmetic
from tasks.judgements.ranking_judge import measure_example, rank_sentences, scale_noise
from tests.laws.example import Example
from tests.tasks.replies import reply

LAWS = [Example(CycleAlignLoss(coef)) for coef in (0.0, 1.0)]
TASK = Arithmetic()
QUESTIONS: list[str] = []
"""What the judge below was asked."""


def by_size(text: str) -> str:
    """A judge that prefers the greater number."""
    QUESTIONS.append(text)
    mark = text.split("<answer.1-")[1].split(">")[0]
    answers = [part.split(">\n")[1].split("\n<")[0] for part in text.split("<answer.")[1:]]
    order = sorted(range(len(answers)), key=lambda i: -int(answers[i]))
    return f"ranking-{mark}: " + " > ".join(str(i + 1) for i in order)


def silent(text: str) -> str:
    return "no order"


def test_agreements_by_hand():
    """A, B, C, D are 0, 1, 2, 3: with BACD three answers agree, ACD or BCD, with DCBA one."""
    assert find_agreement([0, 1, 2, 3], [1, 0, 2, 3]) == [0, 2, 3]
    assert find_agreement([0, 1, 2, 3], [3, 2, 1, 0]) == [0]
    assert find_agreement([0, 1, 2, 3], [0, 1, 2, 3]) == [0, 1, 2, 3] and find_agreement([], []) == []


def test_agreements_by_brute_force():
    """The longest of all subsequences of the judge's order that are in the policy's order."""
    judge = [2, 0, 3, 1, 4]
    for policy in itertools.permutations(range(5)):
        agreement = find_agreement(judge, policy)
        common = [
            chosen
            for size in range(6)
            for chosen in itertools.combinations(judge, size)
            if list(chosen) == sorted(chosen, key=policy.index)
        ]
        assert tuple(agreement) in common and len(agreement) == max(map(len, common))


def loss(means, rewards, coef=0.0, groups=None):
    """Rows of two choices with equal log-probs."""
    logprobs = torch.tensor(means)[:, None].repeat(1, 2).requires_grad_()
    group = torch.tensor(groups or [0] * len(means))
    batch = Batch(action_mask=torch.ones(len(means), 2).bool(), group=group, episode_reward=torch.tensor(rewards))
    return CycleAlignLoss(coef)(PolicyOutput(logprobs, logprobs.detach()), batch), logprobs


def test_the_loss_by_hand():
    """p = -1, -1.4, -.8 in the judge's order: max(0, -.4) + max(0, .2) + max(0, .6) = .8; with -p_best 1.8."""
    means, rewards = [-1.0, -1.4, -0.8], [1.0, 0.5, 0.0]
    assert_close(loss(means, rewards)[0], torch.full((3,), 0.8))
    assert_close(loss(means, rewards, coef=1.0)[0], torch.full((3,), 1.8))
    assert_close(loss([-0.8, -1.0, -1.4], rewards)[0], torch.zeros(3))  # in order
    # two groups do not meet: .6 in the first, and in the second imitation of a row with -3 alone
    both, _ = loss([-1.4, -0.8, -3.0, -5.0], [1.0, 0.0, 1.0, 0.0], coef=1.0, groups=[4, 4, 9, 9])
    assert_close(both, torch.tensor([0.6 + 1.4, 0.6 + 1.4, 3.0, 3.0]))


def test_the_loss_brings_the_order_of_the_judge():
    """A few steps on the log-probs: each answer is at least as likely as the next one."""
    means = torch.tensor([-3.0, -2.0, -1.0], requires_grad=True)
    mask, reward = torch.ones(3, 1).bool(), torch.tensor([1.0, 0.5, 0.0])
    batch = Batch(action_mask=mask, group=torch.zeros(3).long(), episode_reward=reward)
    for _ in range(40):
        logprobs = means.log_softmax(0)[:, None]
        (gradient,) = torch.autograd.grad(CycleAlignLoss()(PolicyOutput(logprobs, logprobs), batch).mean(), means)
        means = (means - 0.5 * gradient).detach().requires_grad_()
    first, second, third = means.tolist()
    assert first > second and first > third and second >= third - 0.3


def test_the_likelihood_does_not_count_length():
    """Two tokens of -1 are more likely in the mean than one of -1.5; the token that is not the policy's has no part."""

    def answer(logprobs, mask):
        ids = torch.zeros(len(mask)).long()
        done = Completion({}, ids, torch.tensor(logprobs), torch.tensor(mask), "x")
        return Episode(TASK[0], 0, 0, [Turn(done)])

    group = [answer([-1.5, -9.0], [True, False]), answer([-1.0, -1.0], [True, True])]
    assert order_by_likelihood(group) == [1, 0]


class Says:
    """An engine whose completions are given: texts with their log-probs."""

    def __init__(self, answers):
        self.answers = list(answers)

    def sample(self, requests, sampling):
        return [self._complete(*self.answers.pop(0)) for _ in requests]

    def _complete(self, text, logprob):
        return Completion({}, torch.zeros(1).long(), torch.tensor([logprob]), torch.ones(1).bool(), text)


def play(answers, judge="by_size", **options):
    rollout = CycleAlign(ScriptedJudge(f"tests.methods.guidance.test_cycle_align:{judge}"), **options)
    context = Context(TASK, Says(answers), None, Sampling(max_tokens=1), seed=0, iteration=0, group_size=len(answers))
    QUESTIONS.clear()
    return rollout, rollout.collect([(0, TASK[0])], context)


def test_agreements_become_examples_of_the_judge():
    """The judge's order is 9, 5, 3, 1, the policy's 5, 9, 3, 1: 9, 3, 1 is shown in the second cycle."""
    rollout, episodes = play([("5", -0.1), ("1", -0.9), ("9", -0.3), ("3", -0.5)], cycles=5)
    assert [e.info["judge_rank"] for e in episodes] == [1, 3, 0, 2]
    question = TASK[0].messages[0]["content"]
    assert rollout.pool[0] == RankedExample(question, ("9", "3", "1"))
    # the order stays the same in the second cycle, after which nothing is asked
    assert len(QUESTIONS) == 2 and len(rollout.pool) == 2
    assert "<example" not in QUESTIONS[0]
    assert "<example.1.rank.1-" in QUESTIONS[1] and "<example.2" not in QUESTIONS[1]
    assert rollout.metrics() == {"rollout/judge_agreement": 0.75, "rollout/judge_examples": 2.0}
    again = CycleAlign(rollout.judge)
    again.load_state_dict(rollout.state_dict())
    assert again.pool == rollout.pool
    score(episodes, TASK, JudgeOrder())
    assert [e.reward for e in episodes] == pytest.approx([2 / 3, 0, 1, 1 / 3])
    score(episodes, TASK, JudgeOrder(weights={"judge_rank": -1.0}))  # a further score is added
    assert [e.reward for e in episodes] == pytest.approx([2 / 3 - 1, -3, 1, 1 / 3 - 2])


def test_one_cycle_without_examples_is_the_judge_alone():
    rollout, episodes = play([("5", -0.1), ("9", -0.3)], cycles=1, shown=0)
    assert [e.info["judge_rank"] for e in episodes] == [1, 0] and len(QUESTIONS) == 1
    assert not rollout.pool  # one answer is no order


def test_old_examples_leave_the_pool():
    rollout, _ = play([("9", -0.1), ("5", -0.3)], cycles=4, pool=1)
    assert len(rollout.pool) == 1


def test_a_group_without_an_order_is_an_error():
    _, episodes = play([("5", -0.1), ("9", -0.3)], judge="silent")
    assert {e.ended for e in episodes} == {"error"} and "no order" in episodes[0].info["error"]


def test_accuracy_is_that_of_the_pairs_which_the_score_tells_apart():
    """Order 0, 1, 2 with gold scores 1, 2, 0: of the pairs 01, 02, 12 the first one is wrong."""
    episodes = [
        replace(reply(TASK[0], "1"), scores={"gold": g}, info={"judge_rank": n}) for n, g in enumerate((1, 2, 0))
    ]
    scores = JudgeOrder("gold").scores(episodes)
    assert [each["judge_accuracy"] for each in scores] == [0.5, 0.5, 1.0]
    assert JudgeOrder().scores([reply(TASK[0], "1")]) == [{}] and JudgeOrder()([reply(TASK[0], "1")]) == [0.0]


def test_a_ranking_has_to_name_every_answer_once():
    question = DemonstratedRanking().ask("Which?", ["a", "b", "c"], [RankedExample("Who?", ("x", "y"))])
    mark = question.text.split("<answer.1-")[1].split(">")[0]
    assert question.read(Reply(f"ranking-{mark}: 3 > 1 > 2")) == [2, 0, 1]
    for wrong in ("1 > 2", "1 > 2 > 2", "1 > 2 > 4", "best"):
        with pytest.raises(Unreadable):
            question.read(Reply(f"ranking-{mark}: {wrong}"))


def test_the_scripted_judge_errs_less_with_better_examples():
    """Many b is better: 2 b, 1 b, none. Two thirds of the pairs of an example with one exchange are right."""
    assert measure_example(["baba", "bada", "dada"]) == 1 and measure_example(["bada", "baba", "dada"]) == 2 / 3
    assert measure_example(["bada", "badi"]) == 0
    assert scale_noise([]) == 2 and scale_noise([1.0]) == pytest.approx(4 / 3) and scale_noise([1.0] * 5) == 0
    form, right = DemonstratedRanking(), RankedExample("?", ("baba", "bada", "dada"))
    answers = ["dada", "baba", "bada"]
    orders = [form.ask(str(i), answers, [right] * 3) for i in range(30)]
    assert all(each.read(Reply(rank_sentences(each.text))) == [1, 2, 0] for each in orders)
    alone = [form.ask(str(i), answers, []) for i in range(200)]
    exact = sum(each.read(Reply(rank_sentences(each.text))) == [1, 2, 0] for each in alone)
    assert 40 < exact < 160
    with pytest.raises(ValueError, match="no answers"):
        rank_sentences("nothing")


@pytest.mark.parametrize("wrong", [{"cycles": 0}, {"shown": -1}, {"least": 1}, {"pool": 0}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match=f"rollout.*{next(iter(wrong))}"):
        CycleAlign(ScriptedJudge("tests.methods.guidance.test_cycle_align:silent"), **wrong)
    with pytest.raises(ValueError, match="imitation_coef"):
        CycleAlignLoss(-1.0)


def test_the_loss_of_ties_masks_and_groups_by_hand():
    # equal rewards: no order, and the mean of both is imitated
    assert_close(loss([-1.0, -2.0], [1.0, 1.0], coef=1.0)[0], torch.full((2,), 1.5))
    # the reward of another group is not compared: -1.4 and -3 are the best rows
    both, _ = loss([-1.4, -0.8, -3.0, -5.0], [1.0, 0.0, 5.0, 2.0], coef=1.0, groups=[4, 4, 9, 9])
    assert_close(both, torch.tensor([0.6 + 1.4, 0.6 + 1.4, 3.0, 3.0]))
    # means -1.4 (one choice) and -.8 (two): .6 + 1.4; the third row has no choice, though the best reward
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    logprobs = torch.tensor([[-1.4, -9.0], [-0.7, -0.9], [-9.0, -9.0]])
    batch = Batch(action_mask=mask, group=torch.zeros(3).long(), episode_reward=torch.tensor([1.0, 0.0, 2.0]))
    out = PolicyOutput(logprobs, logprobs)
    assert_close(CycleAlignLoss()(out, batch), torch.tensor([2.0, 2.0, 0.0]))
    assert_close(CycleAlignLoss().metrics(out, batch)["ranking"], torch.tensor([0.6, 0.6, 0.0]))


def test_the_gradient_by_hand():
    """One violated pair: -1/2 to each of the two choices of the better row, 1/2 to those of the worse."""
    values, logprobs = loss([-1.4, -0.8], [1.0, 0.0])
    (gradient,) = torch.autograd.grad(values.mean(), logprobs)
    assert_close(gradient, torch.tensor([[-0.5, -0.5], [0.5, 0.5]]))


def test_failed_and_single_answers_are_not_asked_about():
    class Fails(Says):
        def _complete(self, text, logprob):
            return replace(super()._complete(text, logprob), ended="error" if text == "7" else "done")

    def collect(*texts):
        rollout = CycleAlign(ScriptedJudge("tests.methods.guidance.test_cycle_align:by_size"), cycles=1)
        engine = Fails([(text, -0.1) for text in texts])
        ctx = Context(TASK, engine, None, Sampling(max_tokens=1), seed=0, iteration=0, group_size=len(texts))
        QUESTIONS.clear()
        return [episode.info.get("judge_rank") for episode in rollout.collect([(0, TASK[0])], ctx)]

    assert collect("5", "7", "9") == [1, None, 0] and "<answer.3" not in QUESTIONS[0]
    assert collect("5") == [None] and not QUESTIONS


def test_the_ranking_is_the_one_that_is_asked_for_and_the_agreement_a_mean():
    ranking = DemonstratedRanking("Which is longer?")
    rollout = CycleAlign(ScriptedJudge("tests.methods.guidance.test_cycle_align:silent"), ranking)
    assert rollout.ranking is ranking
    rollout._agreed = [0.5, 1.0]
    assert rollout.metrics()["rollout/judge_agreement"] == 0.75


def test_an_answer_without_a_place_is_compared_with_none():
    one, other = (
        replace(reply(TASK[0], "1"), scores={"gold": g}, info=i) for g, i in ((1, {"judge_rank": 0}), (0, {}))
    )
    assert JudgeOrder("gold").scores([one, other]) == [{"judge_rank": 0.0}, {}]
