"""Preference terms on numbers worked out by hand."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.preferences.inpo import INPOLoss
from mmrl.objectives.preference import BradleyTerryLoss, DPOLoss, KTOLoss, ORPOLoss
from mmrl.ops.preference import bradley_terry_loss, robust_loss
from tests.laws.example import Example

LAWS = [
    *(Example(DPOLoss(loss)) for loss in ("sigmoid", "robust", "ipo", "hinge")),
    Example(DPOLoss(margins=True, soft_labels=True, reference={"ref_logprobs": 0.25, "old_logprobs": 0.75})),
    Example(BradleyTerryLoss(0.1, margins=True, soft_labels=True), per_row=True),
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


def test_margins_and_soft_labels_of_pairs():
    # d = 0.8 and margin 1: log(1 + e^0.2) = 0.798139, without a margin 0.371101; p = sigmoid(0.4) = 0.598688:
    # 0.371101 p + (0.371101 + 0.8) (1 - p) = 0.692151
    out = PolicyOutput(LOGPROBS, torch.zeros(3, 2), torch.tensor([0.5, -0.3, 9.0]))
    nan = torch.nan
    batch = BATCH.with_columns(
        preference_margin=torch.tensor([1.0, 1.0, nan]), preference_probability=torch.tensor([0.598688, 0.598688, nan])
    )
    for term, expected in (
        (BradleyTerryLoss(), 0.371101),
        (BradleyTerryLoss(margins=True), 0.798139),
        (BradleyTerryLoss(soft_labels=True), 0.692151),
    ):
        assert_close(term(out, batch), torch.tensor([expected, expected, 0.0]), atol=1e-6, rtol=0)
    # a soft label p is label smoothing 1 - p, and smoothing e on top of it turns a share e of the labels
    soft = DPOLoss(soft_labels=True)(out, batch)
    assert_close(soft, DPOLoss(label_smoothing=1 - 0.598688)(out, batch))
    both = DPOLoss(soft_labels=True, label_smoothing=0.25)(out, batch)
    assert_close(both, DPOLoss(label_smoothing=1 - (0.598688 * 0.75 + 0.401312 * 0.25))(out, batch))
    # a margin of the data is a target margin of the pair
    assert_close(DPOLoss(margins=True)(out, batch), DPOLoss(target_margin=1.0)(out, batch))


def test_each_head_learns_by_itself():
    heads = torch.tensor([[0.5, 3.0], [-0.3, 1.0], [0.0, 0.0]])
    out = PolicyOutput(LOGPROBS, torch.zeros(3, 2), heads.mean(1), {"scores": heads})
    expected = (bradley_terry_loss(torch.tensor(0.8)) + bradley_terry_loss(torch.tensor(2.0))) / 2
    assert_close(BradleyTerryLoss()(out, BATCH)[:2], expected.expand(2))


def test_pairs_without_the_column_are_refused():
    out = PolicyOutput(LOGPROBS, torch.zeros(3, 2), torch.zeros(3))
    batch = BATCH.with_columns(preference_margin=torch.full((3,), torch.nan))
    with pytest.raises(ValueError, match=r"bradley_terry_loss\.margins=true: the pairs have no column 'margin'"):
        BradleyTerryLoss(margins=True)(out, batch)


def test_robust_dpo_is_unbiased_under_flipped_labels():
    """With a share e of labels flipped its mean is the loss on the true labels."""
    margin, e = torch.linspace(-3, 3, 13), 0.2
    mean = (1 - e) * robust_loss(margin, e) + e * robust_loss(-margin, e)
    assert_close(mean, bradley_terry_loss(margin))


def test_two_references_with_ipo_are_inpo():
    batch = BATCH.with_columns(behavior_logprobs=torch.tensor([[-0.2, -0.4], [-2.0, 0.0], [0.0, 0.0]]))
    mixed = DPOLoss("ipo", beta=0.25, reference={"ref_logprobs": 0.4, "behavior_logprobs": 0.6})
    assert_close(mixed(OUT, batch), INPOLoss(eta=0.25, tau=0.1)(OUT, batch))
    assert_close(DPOLoss(reference={"ref_logprobs": 1.0})(OUT, BATCH), DPOLoss()(OUT, BATCH))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"reference": {"a": 0.5, "b": 0.4}}, "must sum to 1"),
        ({"reference": {"a": 1.5, "b": -0.5}}, r"dpo_loss\.reference\.b must be > 0"),
        ({"loss_type": "robust", "margins": True}, "margins belongs to loss_type=sigmoid"),
        ({"loss_type": "ipo", "soft_labels": True}, "soft_labels belongs to loss_type=sigmoid"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        DPOLoss(**options)
