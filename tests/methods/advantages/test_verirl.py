"""VeriRL: rescored trees, pairs and sample-balanced weights by hand; truth tables and their testbenches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Prompt, Sampling
from mmrl.methods.advantages.verirl.trees import Attempt, RepairTrees, select_pairs
from mmrl.methods.advantages.verirl.weights import BalancedWeights, ModelReward, sample_balanced_weights
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.programs.circuits import Circuits, draw_expression, evaluate, run_testbenches
from tests.policies.text.oracle import TINY

# ---------------------------------------------------------------- trees and pairs


def test_an_answer_gets_the_mean_of_its_repairs():
    # (.8 + 1) / 2 = .9; (.6 + .9) / 2 = .75; the own scores of answers with repairs do not count
    inner = Attempt("", 0.1, [Attempt("", 0.8), Attempt("", 1.0)])
    assert Attempt("", 0.0, [Attempt("", 0.6), inner]).rescore() == pytest.approx(0.75)
    assert Attempt("", 0.3).rescore() == 0.3


def test_pairs_by_hand():
    assert select_pairs([0.9, 0.5]) == []  # .9 is not above .5 + .4
    assert select_pairs([0.9, 0.49]) == [(0, 1)]
    assert select_pairs([0.8, 0.1]) == []  # .8 is not above .8
    assert select_pairs([1.0, 0.0]) == []  # nothing is learned from answers that fail altogether
    assert select_pairs([0.2, 1.0, 0.9, 0.0, 0.5]) == [(1, 0), (1, 4), (2, 0)]  # .9 - .5 = .4 is no margin


class Solver:
    """An engine whose models write texts by the number of messages in the request."""

    def __init__(self, policy, texts):
        self.policy, self.texts, self.requests = policy, {k: list(v) for k, v in texts.items()}, []

    def sample(self, requests, sampling):
        self.requests += requests
        out = []
        for request in requests:
            text = self.texts[len(request.observation["messages"])].pop(0)
            ids = self.policy.tokenize(text)
            mask = torch.ones(len(ids), dtype=torch.bool)
            out.append(Completion(self.policy.encode(request.observation), ids, -mask.float(), mask, text))
        return out


def test_trees_by_hand():
    # testbenches of two inputs: a=0, a=1, b=0, b=1. The table of a&b is 0001
    task = Circuits(inputs=2)
    prompt = Prompt("circuits/train/3", ({"role": "user", "content": "0001="},), answer="a&b", info={"table": "0001"})
    # a&b 1; ~a|b is 1101: a=1 agrees, .25; x is no expression, 0, and is repaired: a is 0011: a=0 and b=1 agree, .5,
    # and x again, 0, whose repairs b&a and b, 0101, get 1 and .5: .75. So x gets (.5 + .75) / 2 = .625
    texts = {1: ["a&b", "~a|b", "x"], 3: ["a", "x", "b&a", "b"]}
    policy = TextPolicy(config=TINY).eval()
    engine = Solver(policy, texts)
    collector = Scorer(task, WeightedSum({"tests": 1.0}))
    ctx = Context(task, engine, policy, Sampling(max_tokens=8), seed=0, iteration=0, collector=collector)
    rollout = RepairTrees(num_answers=3, max_pairs=5)
    episodes = rollout.collect([(3, prompt)], ctx)
    assert [request.observation["messages"][1:] for request in engine.requests if request.seed][3] == (
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "\n"},
    )
    assert {request.model for request in engine.requests} == {"solver"} == rollout.sampled_models()
    assert len({request.seed for request in engine.requests}) == 7
    # 1 > .25 + .4, but not .625 + .4: one pair, in a group of its own
    assert [(e.group, e.sample_index, e.output) for e in episodes] == [(15, 0, "a&b"), (15, 1, "~a|b")]
    assert [float(e.turns[0].completion.extra["preference"]) for e in episodes] == [1, -1]
    assert rollout.collect([], ctx) == []
    engine.texts = {1: ["a", "a", "b"]}  # no pair: one answer stays, which is not trained on
    (spare,) = rollout.collect([(3, prompt)], ctx)
    assert (spare.output, float(spare.turns[0].completion.extra["preference"])) == ("a", 0)


@pytest.mark.parametrize("wrong", [{"num_answers": 1}, {"num_repairs": 0}, {"rounds": 0}, {"max_pairs": 0}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="need num_answers >= 2"):
        RepairTrees(**wrong)


# ---------------------------------------------------------------- weights


def test_weights_by_hand():
    # mean P = .2: [1, .5, 1.5, 1]; mean R = 1: [1, 2, .5, .5]
    alpha, beta = sample_balanced_weights(torch.tensor([0.2, 0.1, 0.3, 0.2]), torch.tensor([1, 2, 0.5, 0.5]), (0.2, 1))
    assert_close(alpha, torch.tensor([1, 2, 1.5, 1]))
    assert_close(beta, torch.tensor([1, 0.5, 0.5, 0.5]))
    same = sample_balanced_weights(torch.full((3,), 0.4), torch.full((3,), 7.0), (0.4, 7.0))
    assert_close(torch.stack(same), torch.ones(2, 3))


def rows():
    """Rows with the probabilities .2 and .4, .1 (of two tokens), and none; rewards log 1, log 3, log 1 and log 9."""
    mask = torch.tensor([[True, False], [True, True], [True, False], [False, False]])
    logprobs = torch.tensor([[0.2, 9.0], [0.1, 1.6], [0.1, 9.0], [9.0, 9.0]]).log()
    return Batch(
        action_mask=mask,
        advantages=torch.full((4, 2), 3.0),
        behavior_logprobs=logprobs,
        episode_reward=torch.tensor([1.0, 3.0, 1.0, 9.0]).log(),
    )


def test_the_annotator_by_hand():
    # sigmoid(log x) = x / (1 + x): R = [.5, .75, .5], mean 7/12; P = [.2, .4, .1], mean 7/30
    out = BalancedWeights()(rows(), Context(None, None, None, Sampling(), seed=0, iteration=0))
    p, r = [6 / 7, 12 / 7, 3 / 7], [6 / 7, 9 / 7, 6 / 7]
    expected = torch.tensor([[3 * max(a, b), 0] for a, b in zip(p, r)] + [[0, 0]])
    expected[1, 1] = expected[1, 0]
    assert_close(out["advantages"], expected)
    weights = torch.tensor([[min(a, b), 0] for a, b in zip(p, r)] + [[0, 0]])
    weights[1, 1] = weights[1, 0]
    assert_close(out["kl_weights"], weights)


def test_two_processes_weigh_as_one():
    whole, batch = BalancedWeights()(rows(), Context(None, None, None, Sampling(), seed=0, iteration=0)), rows()
    sent = [(0.1, 0.5), (0.2, 0.5), (0.4, 0.75)]
    collector = SimpleNamespace(gather=lambda items: sent)
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, collector=collector)
    part = BalancedWeights()(batch.select(torch.tensor([1, 3])), ctx)
    assert_close(part["kl_weights"], whole["kl_weights"][[1, 3]])


def test_scores_of_the_reward_model_replace_rewards():
    class Judge:
        def sample(self, requests, sampling):
            assert {request.model for request in requests} == {"reward_model"}
            scores = [len(request.observation["answer"]) for request in requests]
            return [SimpleNamespace(output=np.float32(score)) for score in scores]

    prompt = Prompt("circuits/train/0", ({"role": "user", "content": "0001="},))
    ctx = Context(None, Judge(), None, Sampling(), seed=0, iteration=0)
    episodes = [scripted_episode(prompt, text) for text in ("a&b", "b")]
    assert [e.reward for e in ModelReward()(episodes, ctx)] == [3.0, 1.0]
    assert ModelReward()([], ctx) == []


# ---------------------------------------------------------------- circuits


@pytest.mark.parametrize(
    "expression, table",
    [
        ("a^b^c", "01101001"),
        ("~(a&b)|c", "11111101"),
        ("a", "00001111"),
        ("~~b", "00110011"),
        (" a & (b)", "00000011"),
        *(
            (wrong, None)
            for wrong in ("", "d", "a+b", "a and b", "1", "a&", "(a", "a()", "a if b else c", "-a", "a\0b")
        ),
        ("a" + "&a" * 150, None),
        ("~" * 199 + "a", "11110000"),
    ],
)
def test_truth_tables(expression, table):
    assert evaluate(expression, 3) == table


def test_testbenches_by_hand():
    # 00 01 10 11. They differ at 10 alone: a=0 and b=1 agree
    assert run_testbenches("0001", "0011", 2) == [True, False, False, True]
    assert run_testbenches(None, "0011", 2) == [False] * 4


def test_demonstrations_are_right_and_no_table_is_in_both_splits():
    train, held_out = Circuits(count=300), Circuits(count=300).on("held_out")
    for task in (train, held_out):
        for index in range(30):
            episode = scripted_episode(task[index], task.demonstrate(index))
            assert task.score(episode) == {"exact": 1.0, "tests": 1.0, "format": 1.0}
    tables = [{task[i].info["table"] for i in range(300)} for task in (train, held_out)]
    assert not tables[0] & tables[1]
    assert draw_expression(np.random.default_rng(0), 3, 0).lstrip("~") in "abc"
    for wrong in ({"inputs": 1}, {"inputs": 6}, {"operations": [0, 2]}):
        with pytest.raises(ValueError, match="circuits"):
            Circuits(**wrong)


def pairs_of(texts, **options):
    """Groups and texts of the pairs of slot 3, whose table is that of a&b."""
    prompt = Prompt("circuits/train/3", ({"role": "user", "content": "0001="},), answer="a&b", info={"table": "0001"})
    task, policy = Circuits(inputs=2), TextPolicy(config=TINY).eval()
    ctx = Context(
        task, Solver(policy, texts), policy, Sampling(max_tokens=8), seed=0, iteration=0,
        collector=Scorer(task, WeightedSum({"tests": 1.0})),
    )  # fmt: skip
    episodes = RepairTrees(num_answers=len(texts[1]), **options).collect([(3, prompt)], ctx)
    return [(e.group, e.sample_index, e.output) for e in episodes]


def test_every_pair_is_a_group_of_its_own():
    # 1 and 1 against .25: groups 3 * 5 and 3 * 5 + 1; .25 is not below .25, so that nothing is repaired
    expected = [(15, 0, "a&b"), (15, 1, "~a|b"), (16, 0, "b&a"), (16, 1, "~a|b")]
    assert pairs_of({1: ["a&b", "b&a", "~a|b"]}, max_pairs=5, repair_below=0.25) == expected


def test_rows_without_a_choice_count_in_no_mean():
    """In any order: the last of the rows, which has none, comes first here."""
    order, ctx = torch.tensor([3, 0, 1, 2]), Context(None, None, None, Sampling(), seed=0, iteration=0)
    out = BalancedWeights()(rows().select(order), ctx)
    # as above: min of (P / mean P, R / mean R) = min(6/7, 6/7), min(12/7, 9/7) and min(3/7, 6/7)
    assert_close(out["kl_weights"][:, 0], torch.tensor([0, 6 / 7, 9 / 7, 3 / 7]))
