"""Correction weights by hand, what they are on policy, and the loss of three policies that they make."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.importance import MaskedImportanceSampling, TruncatedImportanceSampling
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.objectives.policy import ClippedSurrogate, PolicyGradient
from tests.laws.example import Example

LAWS = [
    *(Example(TruncatedImportanceSampling(2.0, level)) for level in ("token", "sequence", "joint")),
    *(Example(MaskedImportanceSampling(0.5, 2.0, level)) for level in ("token", "sequence", "joint")),
]

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)
LEVELS = ("token", "sequence", "joint")


def batch(old, behaviour, mask=None, demo=False):
    old, behaviour = torch.tensor([old]), torch.tensor([behaviour])
    mask = torch.ones_like(old).bool() if mask is None else torch.tensor([mask])
    return Batch(old_logprobs=old, behavior_logprobs=behaviour, action_mask=mask, is_demo=torch.tensor([demo]))


def weights(annotator, rows):
    return annotator(rows, CTX)["importance_weights"][0]


def test_each_level_by_hand():
    """Ratios 4, 1/2 and, not chosen, anything: product 2, geometric mean sqrt(2)."""
    rows = batch([math.log(4), math.log(0.5), torch.nan], [0.0, 0.0, 7.0], [True, True, False])
    assert_close(weights(TruncatedImportanceSampling(3.0, "token"), rows), torch.tensor([3.0, 0.5, 0.0]))
    assert_close(weights(TruncatedImportanceSampling(3.0, "joint"), rows), torch.tensor([2.0, 2.0, 0.0]))
    assert_close(weights(TruncatedImportanceSampling(3.0, "sequence"), rows), torch.tensor([2**0.5, 2**0.5, 0.0]))
    assert_close(weights(TruncatedImportanceSampling(1.25, "joint"), rows), torch.tensor([1.25, 1.25, 0.0]))
    assert_close(weights(MaskedImportanceSampling(0.0, 3.0, "token"), rows), torch.tensor([0.0, 0.5, 0.0]))
    assert_close(weights(MaskedImportanceSampling(0.75, 3.0, "token"), rows), torch.tensor([0.0, 0.0, 0.0]))
    assert_close(weights(MaskedImportanceSampling(0.0, 1.5, "joint"), rows), torch.tensor([0.0, 0.0, 0.0]))
    assert_close(weights(MaskedImportanceSampling(0.0, 1.5, "sequence"), rows), torch.tensor([2**0.5, 2**0.5, 0.0]))


@pytest.mark.parametrize("kind", [TruncatedImportanceSampling, MaskedImportanceSampling])
@pytest.mark.parametrize("level", LEVELS)
def test_on_policy_every_weight_is_exactly_one(kind, level):
    rows = batch([-1.0, -0.3, -2.7], [-1.0, -0.3, -2.7])
    assert torch.equal(weights(kind(importance_sampling_level=level), rows), torch.ones(3))


@pytest.mark.parametrize("kind", [TruncatedImportanceSampling, MaskedImportanceSampling])
def test_the_levels_agree_on_rows_of_one_choice(kind):
    rows = batch([-1.0], [-1.4])
    assert len({weights(kind(importance_sampling_level=level), rows).item() for level in LEVELS}) == 1


def test_the_product_truncated_is_not_the_product_of_truncated_ones():
    """Ratios 4 and 1/4: the row is as likely as it was, though one choice alone is cut."""
    rows = batch([math.log(4), -math.log(4)], [0.0, 0.0])
    assert_close(weights(TruncatedImportanceSampling(2.0, "joint"), rows), torch.tensor([1.0, 1.0]))
    assert_close(weights(TruncatedImportanceSampling(2.0, "token"), rows), torch.tensor([2.0, 0.25]))


@pytest.mark.parametrize("kind", [TruncatedImportanceSampling, MaskedImportanceSampling])
def test_a_demonstration_counts_one(kind):
    """Its log-probs are zeros that nobody sampled."""
    rows = batch([-3.0, -2.0, -1.0], [0.0, 0.0, 0.0], [True, True, False], demo=True)
    assert torch.equal(weights(kind(), rows), torch.tensor([1.0, 1.0, 0.0]))
    assert kind().metrics(kind()(rows, CTX), CTX) == {}


def test_metrics_by_hand():
    """Ratios 4, 1, 1 at cap 2: weights 2, 1, 1; mean ratio 2, a third cut, effective (4^2 / 6) / 3 = 8/9."""
    rows = batch([math.log(4), 0.0, 0.0], [0.0, 0.0, 0.0])
    annotator = TruncatedImportanceSampling(2.0)
    expected = {"ratio": 2.0, "cut": 1 / 3, "ess": 8 / 9}
    assert annotator.metrics(annotator(rows, CTX), CTX) == pytest.approx(expected, rel=1e-6)
    masked = MaskedImportanceSampling(0.0, 2.0)  # weights 0, 1, 1: two of three
    assert masked.metrics(masked(rows, CTX), CTX)["ess"] == pytest.approx(2 / 3)


def three_policies():
    """Current, proximal and behaviour log-probs; ratios current to proximal e^0.2, e^1, 1; proximal to behaviour
    e^-0.2, e^-0.5, e^2 = 7.389, which is beyond 5; advantages 1, 1, -1.
    """
    rows = batch([-1.2, -1.5, -2.0], [-1.0, -1.0, -4.0])
    rows = rows.with_columns(advantages=torch.tensor([[1.0, 1.0, -1.0]]))
    logprobs = torch.tensor([[-1.0, -0.5, -2.0]], requires_grad=True)
    return PolicyOutput(logprobs, torch.zeros(1, 3)), rows


def test_the_decoupled_loss_by_hand():
    """-1 * e^0.2 * e^-0.2 = -1; -1.4 e^-0.5 = -0.849143, clipped at 1 + 0.4; the third choice counts nothing."""
    out, rows = three_policies()
    term = ClippedSurrogate(0.4, 0.4, old="old_logprobs", importance_weights="importance_weights")
    loss = term(out, MaskedImportanceSampling(0.0, 5.0)(rows, CTX))
    assert_close(loss, torch.tensor([[-1.0, -0.849143, 0.0]]), atol=1e-6, rtol=0)
    capped = term(out, TruncatedImportanceSampling(5.0)(rows, CTX))
    assert_close(capped, torch.tensor([[-1.0, -0.849143, 5.0]]), atol=1e-6, rtol=0)
    loss.sum().backward()
    assert_close(out.logprobs.grad, torch.tensor([[-1.0, 0.0, 0.0]]), atol=1e-6, rtol=0)


def test_nothing_clipped_the_three_policies_are_two():
    """current/proximal * proximal/behaviour = current/behaviour, when neither is cut."""
    out, rows = three_policies()
    rows = MaskedImportanceSampling(0.0, 1e6)(rows, CTX)
    decoupled = ClippedSurrogate(1.0, 1e6, old="old_logprobs", importance_weights="importance_weights")(out, rows)
    assert_close(decoupled, ClippedSurrogate(1.0, 1e6)(out, rows))


def test_sampled_by_the_learner_the_three_policies_are_two():
    out, rows = three_policies()
    rows = TruncatedImportanceSampling()(rows.with_columns(behavior_logprobs=rows["old_logprobs"]), CTX)
    decoupled = ClippedSurrogate(old="old_logprobs", importance_weights="importance_weights")(out, rows)
    assert torch.equal(decoupled, ClippedSurrogate()(out, rows))


def test_the_score_function_is_weighted_too():
    out, rows = three_policies()
    rows = TruncatedImportanceSampling(5.0)(rows, CTX)
    loss = PolicyGradient("importance_weights")(out, rows)
    assert_close(loss, rows["importance_weights"] * torch.tensor([[1.0, 0.5, -2.0]]))


def test_refusals():
    with pytest.raises(ValueError, match=r"truncated_importance_sampling\.cap"):
        TruncatedImportanceSampling(0.5)
    with pytest.raises(ValueError, match=r"masked_importance_sampling\.min_ratio must be in \[0, 1\], got 1\.5"):
        MaskedImportanceSampling(1.5, 2.0)
