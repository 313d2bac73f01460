"""Preference terms on numbers worked out by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.preference import BradleyTerryLoss, DPOLoss, KTOLoss, ORPOLoss
from tests.laws.example import Example

LAWS = [
    *(Example(DPOLoss(loss)) for loss in ("sigmoid", "ipo", "hinge")),
    Example(DPOLoss(reduction="mean")),
    Example(DPOLoss(label_smoothing=0.1, reference=None)),
    Example(DPOLoss(reduction="mean", target_margin=0.5, reference=None)),
    Example(KTOLoss(desirable_weight=1.5, undesirable_weight=0.5)),
    Example(BradleyTerryLoss(), per_row=True),
]

LOGPROBS = torch.tensor([[-0.1, -0.3], [-1.0, 7.0], [-5.0, -5.0]])
OUT = PolicyOutput(LOGPROBS, torch.zeros(3, 2))
BATCH = Batch(  # chosen, rejected, and a row that was not judged
    action_mask=torch.tensor([[1, 1], [1, 0], [1, 1]]).bool(),
    group=torch.tensor([4, 4, 9]),
    preference=torch.tensor([1.0, -1.0, 0.0]),
    ref_logprobs=torch.tensor([[-0.6, -0.8], [-0.5, 3.0], [-1.0, -1.0]]),
    reference_point=torch.full((3,), 0.5),
)


def test_simpo():
    # mean log-probs -0.2 and -1: margin 0.8; 2 * 0.8 - 0.5 = 1.1; log(1 + e^-1.1) = 0.287335
    loss = DPOLoss(beta=2.0, target_margin=0.5, reduction="mean", reference=None)(OUT, BATCH)
    assert_close(loss, torch.tensor([0.287335, 0.287335, 0.0]), atol=1e-6, rtol=0)


def test_orpo():
    # p = e^-0.2 = 0.818731 and e^-1 = 0.367879: log-odds 1.507772 and -0.541325, margin 2.049097;
    # log(1 + e^-2.049097) = 0.121206; with the chosen row's 0.2 nats: 0.2 + 0.5 * 0.121206
    loss = ORPOLoss(beta=0.5)(OUT, BATCH)
    assert_close(loss, torch.tensor([0.260603, 0.260603, 0.0]), atol=1e-5, rtol=0)
    metrics = ORPOLoss().metrics(OUT, BATCH)
    assert_close(metrics["margin"][0], torch.tensor(2.049097), atol=1e-5, rtol=0)
    assert_close(metrics["nll"][:2], torch.tensor([0.2, 0.2]))


def test_kto():
    # log-ratios -0.4 + 1.4 = 1 and -0.5, z0 = 0.5, beta 0.1: 1 - sigmoid(0.05) = 0.487503 with weight 2, and
    # 1 - sigmoid(0.1) = 0.475021
    loss = KTOLoss(desirable_weight=2.0)(OUT, BATCH)
    assert_close(loss, torch.tensor([0.975005, 0.475021, 0.0]), atol=1e-6, rtol=0)
    assert KTOLoss().metrics(OUT, BATCH)["accuracy"].tolist() == [1, 1, 0]


def test_refusals():
    with pytest.raises(ValueError, match="target_margin belongs to loss_type=sigmoid"):
        DPOLoss("ipo", target_margin=0.5)
    with pytest.raises(ValueError, match=r"orpo_loss\.beta"):
        ORPOLoss(0.0)
    with pytest.raises(ValueError, match=r"kto_loss\.undesirable_weight"):
        KTOLoss(undesirable_weight=0.0)
