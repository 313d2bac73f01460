"""Worked by hand: importance of a choice whose policy nobody knows."""

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.guidance.rl_plus import MixtureSurrogate, mixture_ratio, unlikely
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from tests.laws.example import Example

LAWS = [
    Example(MixtureSurrogate()),
    Example(MixtureSurrogate(power=0.0)),
]


def test_hand_computed():
    # p_old = .2: omega = .6, 2 * .25 / .8 = .625; (1 - .25)^.5 = .866025, times A = .75: .649519; loss -.405949
    new, old = torch.tensor([[0.25, 1.0]]).log(), torch.tensor([[0.2, 1.0]]).log()
    assert_close(mixture_ratio(new, old), torch.tensor([[0.625, 1.0]]))
    assert_close(unlikely(new, 0.5), torch.tensor([[0.8660254, 0.0]]))
    batch = Batch(action_mask=torch.ones(1, 2).bool(), advantages=torch.full((1, 2), 0.75), old_logprobs=old)
    assert_close(MixtureSurrogate()(PolicyOutput(new, new), batch), torch.tensor([[-0.4059494, 0.0]]))


def test_the_ratio_is_bounded_and_its_gradient_is_its_own():
    old = torch.linspace(-30, 0, 200).requires_grad_()
    assert float(mixture_ratio(torch.zeros(200), old).detach().max()) <= 4
    new = torch.tensor([[0.25]]).log().requires_grad_()
    mixture_ratio(new, torch.tensor([[0.2]]).log()).sum().backward()
    assert_close(new.grad, torch.tensor([[0.625]]))  # d ratio / d log p = ratio
    assert not unlikely(new, 0.5).requires_grad


def test_each_kind_of_row_has_its_term():
    zero = torch.zeros(2, 1)
    batch = Batch(
        action_mask=torch.ones(2, 1).bool(),
        advantages=torch.ones(2, 1),
        behavior_logprobs=zero,
        old_logprobs=zero - 1,
        is_demo=torch.tensor([False, True]),
        loss_weights=torch.full((2, 1), 0.5),
    )
    own, other = ClippedSurrogate(1.0, 1e6, old="old_logprobs"), MixtureSurrogate(power=0.0)
    objective = Objective({"own": own, "other": other}, row_masks={"own": "~is_demo", "other": "is_demo"})
    assert objective.reads() == {"action_mask", "advantages", "old_logprobs", "is_demo", "loss_weights"}
    _, parts = objective(PolicyOutput(zero - 1, zero), batch)
    p = 0.36787944
    assert_close(parts["own"], torch.tensor(-0.5))
    assert_close(parts["other"], torch.tensor(-0.5 * 2 * p / (p + (p + 1) / 2)))


def test_nothing_outside_the_mask_has_a_loss():
    # p = p_old = 1/2: 1 / (1/2 + 3/4) = .8, times (1 - 1/2)^1 and A = 2
    mask = torch.tensor([[True, False]])
    nothing = torch.tensor([[0.0, torch.nan]])
    half = torch.full((1, 2), 0.5).log()
    batch = Batch(action_mask=mask, advantages=2 + nothing, old_logprobs=half + nothing)
    out = PolicyOutput(half + nothing, half)
    assert_close(MixtureSurrogate(power=1.0)(out, batch), torch.tensor([[-0.8, 0.0]]))
    metrics = MixtureSurrogate(power=1.0).metrics(out, batch)
    assert_close(metrics, {"ratio": torch.tensor([[0.8, 1.0]]), "unlikely": torch.tensor([[0.5, 0.0]])})


def test_a_probability_that_rounds_above_1_has_the_weight_0():
    assert unlikely(torch.tensor([[1e-3]]), 0.5).tolist() == [[0.0]]
