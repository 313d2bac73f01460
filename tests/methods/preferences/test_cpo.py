"""CPO by hand."""

import torch
from torch.testing import assert_close

from mmrl.methods.preferences.cpo import CPOLoss
from tests.objectives.test_preference import BATCH, OUT


def test_by_hand():
    # log-probs -0.4 and -1: beta 0.6 = 0.3, log(1 + e^-0.3) = 0.554355; mean of the chosen row -0.2
    assert_close(CPOLoss(0.5)(OUT, BATCH), torch.tensor([0.754355, 0.754355, 0.0]), atol=1e-6, rtol=0)
    assert_close(CPOLoss(0.5, nll_coef=0)(OUT, BATCH)[0], torch.tensor(0.554355), atol=1e-6, rtol=0)
