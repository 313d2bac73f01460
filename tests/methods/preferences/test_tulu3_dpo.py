"""Length-normalised DPO on numbers worked by hand, with the loss that the method's configuration names."""

import math

import pytest
import torch
from omegaconf import OmegaConf

from mmrl.config.compose import compose
from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.preference import DPOLoss


@pytest.fixture(scope="module")
def loss():
    """The term of `method=tulu3_dpo`."""
    term = OmegaConf.to_container(compose(["method=tulu3_dpo", "setting=preferences"]).model.objective.terms.preference)
    assert term.pop("_target_").endswith("DPOLoss")
    return DPOLoss(**term)


def pair(sums, reference, lengths=(10, 20)):
    """Rows of a chosen and a rejected answer with these log-probs, spread unevenly over their tokens."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    weights = torch.arange(1.0, max(lengths) + 1).expand(2, -1) * mask
    spread = weights / weights.sum(1, keepdim=True)
    batch = Batch(
        action_mask=mask,
        group=torch.tensor([3, 3]),
        preference=torch.tensor([1.0, -1.0]),
        ref_logprobs=torch.tensor(reference)[:, None] * spread,
    )
    return PolicyOutput(torch.tensor(sums)[:, None] * spread, torch.zeros_like(spread)), batch


def test_the_loss_by_hand(loss):
    # chosen: (-20 + 24) / 10 = .4; rejected: (-30 + 28) / 20 = -.1; 5 (.4 + .1) = 2.5; log(1 + e^-2.5) = .078889
    values = loss(*pair([-20.0, -30.0], [-24.0, -28.0]))
    assert values.tolist() == pytest.approx([math.log1p(math.exp(-2.5))] * 2, abs=1e-6)
    assert values[0].item() == pytest.approx(0.07889, abs=1e-5)


def test_the_start_has_the_loss_of_a_coin(loss):
    # policy = reference: the margin is 0, and log 2 = .693147
    assert loss(*pair([-24.0, -28.0], [-24.0, -28.0]))[0].item() == pytest.approx(0.693147, abs=1e-6)


def test_the_sum_over_tokens_is_another_loss(loss):
    # without the division by the lengths: 5 ((-20 + 24) - (-30 + 28)) = 30
    summed = DPOLoss(beta=loss.beta)(*pair([-20.0, -30.0], [-24.0, -28.0]))
    assert summed[0].item() == pytest.approx(math.exp(-30), rel=1e-3)
