"""Terms and their diagnostics on numbers worked out by hand."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.grounding import MapCrossEntropy
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.imitation_bins import SmoothedNegativeLogLikelihood
from mmrl.objectives.policy import CISPO, SAPO, ClippedSurrogate, PolicyGradient
from mmrl.objectives.q import ActorLoss, TDLoss, TemperatureLoss
from mmrl.objectives.regularizer import KL, Entropy
from mmrl.objectives.value import SquaredValue
from mmrl.objectives.weighted_kl import WeightedKL
from tests.laws.example import Example

LAWS = [
    Example(PolicyGradient()),
    Example(PolicyGradient("importance_weights")),
    Example(CISPO()),
    Example(CISPO(0.2, clip_low=0.1, old="old_logprobs")),
    Example(SAPO()),
    Example(SAPO(2.0, 3.0, old="old_logprobs")),
    *(
        Example(ClippedSurrogate(0.1, 0.2, clip_dual, level))
        for clip_dual in (None, 1.5)
        for level in ("token", "sequence", "joint")
    ),
    Example(ClippedSurrogate(old="old_logprobs")),
    Example(ClippedSurrogate(old="old_logprobs", importance_weights="importance_weights")),
    *(Example(KL(estimator)) for estimator in ("k1", "k2", "k3")),
    Example(KL(context="blind", cap=0.5)),
    Example(KL(old="behavior_logprobs")),
    Example(WeightedKL("k2")),
    Example(WeightedKL("k2", "behavior_logprobs")),
    Example(NegativeLogLikelihood(context="blind")),
    Example(NegativeLogLikelihood()),
    Example(SmoothedNegativeLogLikelihood(width=1.0)),
    Example(MapCrossEntropy(maps=2)),
    *(Example(TDLoss(), per_row) for per_row in (False, True)),
    *(Example(ActorLoss(over)) for over in ("min", "mean", "first")),
    Example(TemperatureLoss(target_entropy=0.5)),
    *(Example(SquaredValue(clip), per_row) for clip in (None, 0.1) for per_row in (False, True)),
]

LOGPROBS = torch.tensor([[1.3, 0.7, 5.0]]).log()
OUT = PolicyOutput(LOGPROBS, torch.tensor([[0.1, 0.2, 0.3]]))
BATCH = Batch(
    action_mask=torch.tensor([[True, True, False]]),
    behavior_logprobs=torch.zeros(1, 3),
    old_logprobs=LOGPROBS,
    ref_logprobs=LOGPROBS - 0.3,
    advantages=torch.tensor([[1.0, -1.0, 9.0]]),
)


def test_policy_terms():
    assert_close(PolicyGradient()(OUT, BATCH), torch.tensor([[-math.log(1.3), math.log(0.7), 0.0]]))
    # both choices are held: -1.2 and 0.8
    assert_close(ClippedSurrogate()(OUT, BATCH), torch.tensor([[-1.2, 0.8, 0.0]]))
    # the policy before the update as the denominator: ratio 1
    assert_close(ClippedSurrogate(old="old_logprobs")(OUT, BATCH), torch.tensor([[-1.0, 1.0, 0.0]]))
    # joint ratio 1.3 * 0.7 = 0.91
    assert_close(ClippedSurrogate(importance_sampling_level="joint")(OUT, BATCH), torch.tensor([[-0.91, 0.91, 0.0]]))


def test_policy_metrics():
    metrics = (
        ClippedSurrogate(clip_low=0.2, clip_high=0.4)(OUT, BATCH),
        ClippedSurrogate(clip_low=0.2, clip_high=0.4).metrics(OUT, BATCH),
    )
    ratio, clip_fraction, kl = (metrics[1][name][0, :2] for name in ("ratio", "clip_fraction", "kl"))
    assert_close(ratio, torch.tensor([1.3, 0.7]))
    assert_close(clip_fraction, torch.tensor([0.0, 1.0]))
    # k3 of the sampling policy: r - 1 - log r
    assert_close(kl, torch.tensor([0.3 - math.log(1.3), -0.3 - math.log(0.7)]))


def test_which_columns_are_read_depends_on_the_fields():
    assert ClippedSurrogate(old="old_logprobs").reads() == {"action_mask", "advantages", "old_logprobs"}
    assert KL(reference="teacher_logprobs").reads() == {"action_mask", "teacher_logprobs"}
    assert SquaredValue().reads() == {"action_mask", "returns"} and SquaredValue(1.0).reads() == {
        "action_mask",
        "returns",
        "values",
    }


def test_regularizers_and_imitation():
    assert_close(KL()(OUT, BATCH), torch.tensor([[0.040818, 0.040818, 0.0]]), atol=1e-6, rtol=0)
    assert_close(KL("k1")(OUT, BATCH), torch.tensor([[0.3, 0.3, 0.0]]))
    assert_close(Entropy()(OUT, BATCH), torch.tensor([[-0.1, -0.2, 0.0]]))
    assert_close(NegativeLogLikelihood()(OUT, BATCH), torch.tensor([[-math.log(1.3), -math.log(0.7), 0.0]]))


def test_kl_with_the_importance_ratio():
    # k3 0.040818 at d = -0.3, times ratios 1.3 and 0.7
    assert_close(KL(old="behavior_logprobs")(OUT, BATCH), torch.tensor([[0.053064, 0.028573, 0.0]]), atol=1e-6, rtol=0)


def test_the_mean_gradient_of_k3_with_the_ratio_is_that_of_the_reverse_kl():
    logits = torch.tensor([0.3, -1.0, 0.8], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-0.5, 0.2, 0.4], dtype=torch.float64).log_softmax(0)
    policy = logits.log_softmax(0)
    one = policy.detach().exp()[:, None]  # one row for each choice, as often as the policy makes it
    batch = Batch(action_mask=torch.ones(3, 1).bool(), behavior_logprobs=one.log(), ref_logprobs=reference[:, None])
    estimate = KL(old="behavior_logprobs")(PolicyOutput(policy[:, None], policy[:, None]), batch)
    ours = torch.autograd.grad((one * estimate).sum(), logits, retain_graph=True)[0]
    assert_close(ours, torch.autograd.grad((policy.exp() * (policy - reference)).sum(), logits)[0])


def values(clip=None, per_row=True):
    predicted = torch.tensor([2.0, 0.1])
    columns = {"returns": torch.tensor([1.0, 1.0]), "values": torch.tensor([0.0, 0.0])}
    if not per_row:
        predicted, columns = predicted[None], {name: column[None] for name, column in columns.items()}
    mask = torch.ones(2, 1).bool() if per_row else torch.ones(1, 2).bool()
    out = PolicyOutput(torch.zeros(mask.shape), torch.zeros(mask.shape), predicted)
    return SquaredValue(clip)(out, Batch(action_mask=mask, **columns))


@pytest.mark.parametrize("per_row", [True, False])
def test_values(per_row):
    assert_close(values(per_row=per_row).flatten(), torch.tensor([0.5, 0.405]))
    # moved from 0 to 2, held at 0.5: max(1, 0.25) / 2; moved to 0.1: not held
    assert_close(values(0.5, per_row).flatten(), torch.tensor([0.5, 0.405]))
    # the target 1 lies beyond what a move of 0.05 reaches: 0.95^2 / 2 is the larger
    assert_close(values(0.05, per_row).flatten(), torch.tensor([0.5, 0.45125]))


def test_refusals():
    out = PolicyOutput(torch.zeros(1, 2), torch.zeros(1, 2))
    batch = Batch(action_mask=torch.ones(1, 2).bool(), returns=torch.zeros(1))
    with pytest.raises(ValueError, match="value_head=true"):
        SquaredValue()(out, batch)
    out.values = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="differ in shape"):
        SquaredValue()(out, batch)
    with pytest.raises(ValueError, match="clip_dual must be > 1"):
        ClippedSurrogate(clip_dual=1.1)
    with pytest.raises(ValueError, match="clip_low"):
        ClippedSurrogate(clip_low=1.5)
    with pytest.raises(ValueError, match="clip"):
        SquaredValue(0.0)
