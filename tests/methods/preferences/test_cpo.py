"""CPO by hand."""

import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.preferences.cpo import CPOLoss
from tests.objectives.test_preference import BATCH, OUT

FIRST = torch.tensor([[True, False, False]] * 4)


def test_by_hand():
    # log-probs -0.4 and -1: beta 0.6 = 0.3, log(1 + e^-0.3) = 0.554355; mean of the chosen row -0.2
    assert_close(CPOLoss(0.5)(OUT, BATCH), torch.tensor([0.754355, 0.754355, 0.0]), atol=1e-6, rtol=0)
    assert_close(CPOLoss(0.5, nll_coef=0)(OUT, BATCH)[0], torch.tensor(0.554355), atol=1e-6, rtol=0)


def test_forced_choices_count_in_neither_part_and_metrics_are_weighted():
    """Chosen -0.2 - 0.4 over two choices, rejected -1 and a forced token: margin 0.4, likelihood 0.3 a token.

    A pair of equal log-probs has the margin 0, which is not a right order.
    """
    batch = Batch(
        action_mask=torch.tensor([[True, True, False], [True, False, False], [True, False, False], [True, True, True]]),
        group=torch.tensor([4, 4, 5, 5]),
        preference=torch.tensor([1.0, -1.0, 1.0, -1.0]),
    )
    logprobs = torch.tensor([[-0.2, -0.4, -9.0], [-1.0, -7.0, -7.0], [-0.6, -5.0, -5.0], [-0.1, -0.2, -0.3]])
    metrics = CPOLoss(0.5, nll_coef=2.0).metrics(PolicyOutput(logprobs, logprobs), batch)
    assert_close(metrics["margin"], torch.tensor([0.4, 0.4, 0.0, 0.0]), atol=1e-6, rtol=0)
    assert metrics["accuracy"][:2].tolist() == [1, 1]
    assert_close(metrics["nll"], torch.tensor([0.6, 0.6, 1.2, 1.2]), atol=1e-6, rtol=0)
    tied = CPOLoss().metrics(PolicyOutput(-torch.ones(4, 3), logprobs), batch.with_columns(action_mask=FIRST))
    assert tied["margin"].tolist() == tied["accuracy"].tolist() == [0, 0, 0, 0]
