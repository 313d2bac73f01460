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
    # unweighted e = -.5, .5, .5, .5 does not sum to 0, so the mean of the others has a gradient of its own:
    # 2 (-.5 - .5) / 4 = -.5 and 2 (.5 - .5 / 3) / 4 = 1 / 6
    score.grad = None
    evaluate(score, right.tolist(), beta=2.0, balanced=False).mean().backward()
    assert_close(score.grad, torch.tensor([-0.5, 1 / 6, 1 / 6, 1 / 6]))


def test_what_was_not_chosen_does_not_count():
    """Rows sum .1 + .2, -.2, nothing, -.4: the others' means are -.3, -.05 and .05, so the logits .6, -.15 and -.45."""
    mask = torch.tensor([[1, 1], [1, 0], [0, 0], [1, 0]]).bool()
    logprobs = torch.tensor([[0.1, 0.2], [-0.2, 9.0], [5.0, 5.0], [-0.4, 7.0]])
    batch = Batch(
        action_mask=mask, group=GROUP, episode_reward=torch.tensor([1.0, 0, 1, 0]), behavior_logprobs=torch.zeros(4, 2)
    )
    out = PolicyOutput(logprobs, logprobs)
    # log(1 + e^-.6) = .437488, log(1 + e^-.15) = .620957, log(1 + e^-.45) = .493248
    plain = torch.tensor([0.437488, 0.620957, 0.0, 0.493248])
    assert_close(PACSLoss(balanced=False)(out, batch), plain, atol=1e-6, rtol=0)
    # one of the three that count is right: 3 / 2, and 3 / 4 for the two that are wrong
    assert_close(PACSLoss()(out, batch), plain * torch.tensor([1.5, 0.75, 0, 0.75]), atol=1e-6, rtol=0)


def test_accuracy_by_hand():
    # logits .4, 0, 0, -.4: right where they are above 0 and the completion is right, or neither
    logprobs = torch.tensor([[0.3], [0.0], [0.0], [-0.3]])
    for right, accuracy in (([1.0, 0, 1, 0], [1.0, 1, 0, 1]), ([0.0, 0, 0, 1], [0.0, 1, 1, 0])):
        batch = Batch(
            action_mask=ALL[:, None],
            group=GROUP,
            episode_reward=torch.tensor(right),
            behavior_logprobs=torch.zeros(4, 1),
        )
        assert PACSLoss().metrics(PolicyOutput(logprobs, logprobs), batch)["accuracy"].tolist() == accuracy


def test_a_group_of_one_class_has_a_loss():
    score = torch.tensor([0.3, -0.2, 0.1, -0.4])
    for right in ([1.0] * 4, [0.0] * 4):
        assert_close(class_weights(torch.tensor(right), GROUP, ALL), torch.ones(4))
        assert evaluate(score, right).mean() > 0
    alone = score[:1].requires_grad_()
    lonely = leave_one_out(alone, GROUP[:1], ALL[:1])
    assert_close(lonely, score[:1])
    lonely.backward()
    assert alone.grad == 1
