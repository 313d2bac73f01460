"""INPO: the margin against the last policy and the reference, by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.preferences.inpo import INPOLoss


def evaluate(policy, reference, old, **options):
    """The loss of one pair whose answers differ by these log-probs; a second choice is masked out."""
    rows = {"ref_logprobs": reference, "behavior_logprobs": old}
    columns = {name: torch.tensor([[margin - 5.0, 9.0], [-5.0, 9.0]]) for name, margin in rows.items()}
    batch = Batch(
        action_mask=torch.tensor([[True, False]] * 2),
        group=torch.zeros(2, dtype=torch.long),
        preference=torch.tensor([1, -1]),
        **columns,
    )
    logprobs = torch.stack([torch.as_tensor(policy) - 5.0, torch.tensor(-5.0)])[:, None].expand(2, 2)
    return INPOLoss(**options)(PolicyOutput(logprobs, torch.zeros(2, 2)), batch)


def test_by_hand():
    # h = 3 - 0.4 * 1 - 0.6 * 2 = 1.4, target 1 / (2 * 0.25) = 2: 0.6^2
    assert_close(evaluate(3.0, 1.0, 2.0, eta=0.25, tau=0.1), torch.full((2,), 0.36))
    # nothing has moved: h = 0 and 2^2
    assert_close(evaluate(1.0, 1.0, 1.0, eta=0.25, tau=0.1), torch.full((2,), 4.0))
    # tau = eta leaves the last policy out, IPO against the reference: h = 2 - 1
    assert_close(evaluate(2.0, 1.0, 7.0, eta=0.25, tau=0.25), torch.full((2,), 1.0))


def test_a_margin_of_0_is_no_right_order():
    """h = 3 - 0.4 * 1 - 0.6 * 2 = 1.4, and 0 where nothing has moved; a row without a preference has no loss."""
    columns = {"action_mask": torch.ones(5, 1).bool(), "group": torch.tensor([0, 0, 1, 1, 2])}
    batch = Batch(
        **columns,
        preference=torch.tensor([1, -1, 1, -1, 0]),
        behavior_logprobs=torch.tensor([[-1.0], [-3.0], [-1.0], [-1.0], [-4.0]]),
        ref_logprobs=torch.tensor([[-1.0], [-2.0], [-1.0], [-1.0], [-4.0]]),
    )
    out = PolicyOutput(torch.tensor([[-1.0], [-4.0], [-1.0], [-1.0], [-1.0]]), torch.zeros(5, 1))
    metrics = INPOLoss(eta=0.25, tau=0.1).metrics(out, batch)
    assert_close(metrics["margin"], torch.tensor([1.4, 1.4, 0.0, 0.0, 0.0]), atol=1e-6, rtol=0)
    assert metrics["accuracy"].tolist() == [1, 1, 0, 0, 0]
    assert_close(INPOLoss(eta=0.25, tau=0.1)(out, batch), torch.tensor([0.36, 0.36, 4.0, 4.0, 0.0]))


def test_it_learns_the_step_of_mirror_descent():
    """The minimum is D(policy) = 1 / (2 eta) + 0.4 D(reference) + 0.6 D(old) = 2 + 0.4 + 1.2."""
    margin = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([margin], lr=0.2)
    for _ in range(40):
        optimizer.zero_grad()
        evaluate(margin, 1.0, 2.0, eta=0.25, tau=0.1).mean().backward()
        optimizer.step()
    assert_close(margin.detach(), torch.tensor(3.6), atol=1e-4, rtol=0)


@pytest.mark.parametrize("options", [{"tau": 0.0}, {"eta": 0.1, "tau": 0.2}])
def test_the_anchor_is_at_most_the_step(options):
    with pytest.raises(ValueError, match="tau must be above 0 and at most eta"):
        INPOLoss(**options)
