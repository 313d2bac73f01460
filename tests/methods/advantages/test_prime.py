"""Worked by hand: token rewards from outcomes alone, and what they are worth against the other episodes."""

import math

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.advantages.prime import OutcomeCrossEntropy, ProcessAdvantage, leave_one_out_process
from mmrl.objectives.objective import Objective
from mmrl.objectives.weighting import TokenMean
from tests.laws.example import Example

LAWS = [
    Example(ProcessAdvantage(), group_relative=True),
    Example(OutcomeCrossEntropy(scale=0.5)),
]

PROCESS = torch.tensor([[0.2, 0.4], [-0.1, 0.1]])
OUTCOME = torch.tensor([1.0, 0.0])
ALL = torch.ones(2, 2).bool()


def episodes() -> tuple[Batch, Context]:
    """Two episodes of one problem, one of them right, scored by the reward model."""
    batch = Batch(
        action_mask=ALL,
        group=torch.zeros(2).long(),
        episode=torch.arange(2),
        step=torch.zeros(2).long(),
        episode_reward=OUTCOME,
        reward_logprobs=PROCESS - 1,
        ref_logprobs=torch.full((2, 2), -1.0),
    )
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0)
    return batch, ctx


def test_leave_one_out():
    one = torch.zeros(2).long()
    # means .3 and 0: q 2 - .3 = (.1, .5) and (-.5, -.1); outcomes 2 o - 1 = (1, -1) at the end
    tokens = leave_one_out_process(PROCESS, OUTCOME, ALL, one, (1.0, 0.0))
    assert_close(tokens, torch.tensor([[0.6, 0.5], [-0.6, -0.1]]))  # to go
    assert_close(leave_one_out_process(PROCESS, OUTCOME, ALL, one), torch.tensor([[8.0, 7.5], [-8.0, -5.5]]))
    alike = leave_one_out_process(PROCESS[:1].expand(2, 2), torch.ones(2), ALL, one)
    assert_close(alike.sum(1)[0], alike.sum(1)[1])
    assert (leave_one_out_process(PROCESS, OUTCOME, ALL, torch.arange(2)) == 0).all()  # nobody to be compared with


def test_leave_one_out_of_three():
    one, all_three = torch.zeros(3).long(), torch.ones(3, 1).bool()
    # the means of the others are .3, .45 and .15, and 0, 1/2 and 1/2 of the outcomes
    process, outcome = torch.tensor([[0.3], [0.0], [0.6]]), torch.tensor([1.0, 0.0, 0.0])
    tokens = leave_one_out_process(process, outcome, all_three, one, (1.0, 0.0))
    assert_close(tokens, torch.tensor([[0.0], [-0.45], [0.45]]))
    ends = leave_one_out_process(process, outcome, all_three, one, (0.0, 1.0))
    assert_close(ends, torch.tensor([[1.0], [-0.5], [-0.5]]))
    # tokens outside the mask: means .2 and 0
    padded, inside = torch.tensor([[0.2, 9.0], [-0.1, 0.1]]), torch.tensor([[True, False], [True, True]])
    tokens = leave_one_out_process(padded, OUTCOME, inside, one[:2], (1.0, 0.0))
    assert_close(tokens, torch.tensor([[0.2, 0.0], [-0.4, 0.0]]), atol=1e-6, rtol=0)
    both = leave_one_out_process(padded, OUTCOME, inside, one[:2], (1.0, 1.0))  # and the outcomes 1 and -1
    assert_close(both, torch.tensor([[1.2, 0.0], [-1.4, -1.0]]), atol=1e-6, rtol=0)


def test_the_annotator_whitens_over_all_choices():
    batch, ctx = episodes()
    annotator = ProcessAdvantage(scale=1.0)
    result = annotator(batch, ctx)
    # (8, 7.5, -8, -5.5): mean .5, sample std 8.436
    expected = torch.tensor([[0.889043, 0.829774], [-1.007582, -0.711235]])
    assert_close(result["advantages"], expected, rtol=0, atol=1e-6)
    lower = result.with_columns(reward_logprobs=PROCESS - 1.1)  # sums .4 and -.2
    assert annotator.metrics(lower, ctx) == {"agreement": 1.0}


def test_what_was_not_chosen_does_not_count():
    """q = .2 and (-.1, .1), means .2 and 0: 5 (.2) and 5 (-.4, 0) to go, outcomes 5 and -5: 6, -7 and -5.

    Their mean is -2 and their sample std sqrt((64 + 25 + 9) / 2) = 7.
    """
    batch, ctx = episodes()
    batch["action_mask"] = torch.tensor([[True, False], [True, True]])
    batch["reward_logprobs"] = torch.tensor([[-0.8, torch.nan], [-1.1, -0.9]])
    result = ProcessAdvantage(scale=1.0)(batch, ctx)["advantages"]
    assert_close(result, torch.tensor([[8 / 7, 0.0], [-5 / 7, -3 / 7]]), rtol=0, atol=1e-6)


def test_agreement_by_hand():
    """Sums of q .5, -.5, 0 and one without a choice against outcomes 1, 1, 1/2 and 0: two of three agree."""
    mask = torch.tensor([[True, True], [True, False], [True, False], [False, False]])
    batch = Batch(
        action_mask=mask,
        episode_reward=torch.tensor([1.0, 1.0, 0.5, 1.0]),
        reward_logprobs=torch.tensor([[0.2, 0.3], [-0.5, 9.0], [0.0, -9.0], [-9.0, -9.0]]),
        ref_logprobs=torch.zeros(4, 2),
    )
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0)
    assert ProcessAdvantage().metrics(batch, ctx) == {"agreement": 2 / 3}
    out = PolicyOutput(mask, mask, others={"reward": PolicyOutput(batch["reward_logprobs"], mask)})
    assert OutcomeCrossEntropy().metrics(out, batch)["accuracy"].tolist() == [1, 0, 1, 0]
    empty = batch.with_columns(action_mask=torch.zeros(4, 2).bool())
    assert ProcessAdvantage().metrics(empty, ctx) == {}


def test_outcomes_are_between_0_and_1_and_rows_without_a_choice_are_finite():
    told = PolicyOutput(torch.zeros(3, 1), torch.zeros(3, 1))
    mask, zero = torch.tensor([[True], [True], [False]]), torch.zeros(3, 1)
    batch = Batch(action_mask=mask, episode_reward=torch.tensor([3.0, -2.0, 1.0]), ref_logprobs=zero - 1)
    loss = OutcomeCrossEntropy(scale=1.0)(PolicyOutput(zero, zero, others={"reward": told}), batch)
    # the logit of both is 1: log(1 + e^-1) = .313262 and log(1 + e) = 1.313262; without a choice log 2
    assert_close(loss, torch.tensor([0.3132617, 1.3132617, 0.6931472]))


def test_cross_entropy_of_the_outcome():
    # sigmoid(.05 * .6) for a right answer: log(1 + e^-.03) = .678260; nothing known: log 2
    out = PolicyOutput(
        PROCESS, PROCESS, others={"reward": PolicyOutput(torch.tensor([[0.2, 0.4], [0.0, 0.0]]), PROCESS)}
    )
    batch = Batch(action_mask=ALL, episode_reward=OUTCOME, ref_logprobs=torch.zeros(2, 2))
    assert_close(OutcomeCrossEntropy()(out, batch), torch.tensor([0.6782597, 0.6931472]) / 2)  # two choices each
    assert OutcomeCrossEntropy().metrics(out, batch)["accuracy"].tolist() == [1, 1]


def test_every_answer_counts_alike_in_the_cross_entropy():
    """Of one and of three choices: weights of a token mean give (c_1 + c_2) / 4, whatever the lengths are."""
    mask = torch.tensor([[True, False, False], [True, True, True]])
    zero = torch.zeros(2, 3)
    told = PolicyOutput(torch.tensor([[4.0, 9.0, 9.0], [-2.0, -2.0, -4.0]]), zero)
    batch = Batch(action_mask=mask, episode_reward=torch.tensor([0.0, 0.0]), ref_logprobs=zero)
    batch["loss_weights"] = TokenMean()(batch, lambda value: value)
    out = PolicyOutput(zero, zero, others={"reward": told})
    loss, _ = Objective({"outcome": OutcomeCrossEntropy(scale=1.0)})(out, batch)
    assert_close(loss, torch.tensor([math.log(1 + math.exp(4)), math.log(1 + math.exp(-8))]).sum() / 4)


def test_token_rewards_are_scaled_as_in_the_training_of_their_model():
    # beta 2 in place of 1: process 2 * 5 * (.6, .5, -.6, -.1), outcome 5 * (1, -1): (11, 10, -11, -6), whitened
    batch, ctx = episodes()
    raw = torch.tensor([[11.0, 10.0], [-11.0, -6.0]])
    expected = (raw - raw.mean()) / raw.std()
    assert_close(ProcessAdvantage(scale=2.0)(batch, ctx)["advantages"], expected, rtol=0, atol=1e-5)
