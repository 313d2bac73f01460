"""PACS: the outcome as a label and the centred log-ratio as its logit, by hand."""

import math

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.losses.pacs import PACSLoss, class_weights, leave_one_out
from tests.laws.example import Example

LAWS = [Example(PACSLoss(0.5, balanced)) for balanced in (True, False)]

GROUP, ALL = torch.zeros(4, dtype=torch.long), torch.ones(4).bool()


def evaluate(score, right, **options):
    batch = Batch(
        action_mask=ALL[:, None], group=GROUP, episode_reward=torch.tensor(right), behavior_logprobs=torch.zeros(4, 1)
    )
    logprobs = torch.as_tensor(score)[:, None]
    return PACSLoss(**options)(PolicyOutput(logprobs, logprobs.detach()), batch)


def test_by_hand():
    # means of the others: (-.2 + .1 - .4) / 3 = -.166667, and so on
    score = torch.tensor([0.3, -0.2, 0.1, -0.4])
    assert_close(leave_one_out(score, GROUP, ALL), torch.tensor([0.466667, -0.2, 0.2, -0.466667]), atol=1e-6, rtol=0)
    # log(1 + e^-.466667) = .486793 and log(1 + e^-.2) = .598139, twice each: .542466
    assert_close(evaluate(score, [1.0, 0, 1, 0]).mean(), torch.tensor(0.542466), atol=1e-6, rtol=0)
    # one of four is right: weights 4 / 2 = 2 and 4 / 6
    assert_close(class_weights(torch.tensor([1.0, 0, 0, 0]), GROUP, ALL), torch.tensor([2.0, 2 / 3, 2 / 3, 2 / 3]))
    # 2 * .486793, and 2/3 of .598139, log(1 + e^.2) = .798139 and .486793: mean .557241
    assert_close(evaluate(score, [1.0, 0, 0, 0]).mean(), torch.tensor(0.557241), atol=1e-6, rtol=0)


def test_on_fresh_samples_the_loss_is_log_2():
    for right in ([1.0, 0, 0, 0], [1.0, 0, 1, 0]):
        for balanced in (True, False):
            out = evaluate(torch.zeros(4), right, balanced=balanced)
            assert_close(out.mean(), torch.tensor(math.log(2)))


def test_at_log_ratio_0_the_gradient_is_centred():
    """d mean loss / d s_i = (e_i - mean_{j != i} e_j) / n, e = w (1/2 - y)."""
    score, right = torch.zeros(4, requires_grad=True), torch.tensor([1.0, 0, 0, 0])
    evaluate(score, right.tolist(), beta=2.0).mean().backward()
    e = class_weights(right, GROUP, ALL) * (0.5 - right)
    assert_close(score.grad, 2.0 * (e - (e.sum() - e) / 3) / 4)


def test_a_group_of_one_class_has_a_loss():
    score = torch.tensor([0.3, -0.2, 0.1, -0.4])
    for right in ([1.0] * 4, [0.0] * 4):
        assert_close(class_weights(torch.tensor(right), GROUP, ALL), torch.ones(4))
        assert evaluate(score, right).mean() > 0
    lonely = leave_one_out(score[:1], GROUP[:1], ALL[:1])
    assert_close(lonely, score[:1])
