"""GMPO: clipped log-ratios, their geometric mean and its gradient, by hand."""

from math import exp

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.losses.gmpo import GeometricMeanSurrogate, clip_log_ratio, geometric_mean_ratio
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate, PolicyGradient
from mmrl.objectives.weighting import SequenceMean

GMPO = GeometricMeanSurrogate()  # both bounds at 0.4 nats
D = [[0.1, 0.7, -0.9, 9.0], [-0.1, -0.7, 0.9, 0.2]]  # the first row has three choices, the second four
MASK = torch.tensor([[True, True, True, False], [True] * 4])


def make_batch(advantages=(2.0, -0.5)) -> Batch:
    batch = Batch(
        action_mask=MASK,
        advantages=torch.tensor(advantages)[:, None].expand(2, 4),
        behavior_logprobs=torch.full((2, 4), -1.0),
    )
    return batch.with_columns(loss_weights=SequenceMean()(batch, lambda total: total))


def make_output(d) -> PolicyOutput:
    return PolicyOutput((torch.tensor(d) - 1.0).requires_grad_(), torch.zeros(2, 4))


def gradient(term, d, batch) -> torch.Tensor:
    out = make_output(d)
    Objective({"term": term})(out, batch)[0].backward()
    return out.logprobs.grad


def test_clip_by_hand():
    """Only the bound that a gain would cross: the upper one of a good choice, the lower one of a bad choice."""
    d = torch.tensor([[-0.9, 0.1, 0.7]] * 3)
    advantages = torch.tensor([[1.0], [-1.0], [0.0]]).expand(3, 3)
    expected = torch.tensor([[-0.9, 0.1, 0.3], [-0.2, 0.1, 0.7], [-0.9, 0.1, 0.3]])
    assert_close(clip_log_ratio(d, advantages, clip_low=0.2, clip_high=0.3), expected)


@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_the_clip_is_the_minimum_of_the_paper(advantage):
    """|min(A rho, A clip(rho, e^-0.4, e^0.4))| = |A| e^c."""
    d = torch.linspace(-1, 1, 21)[None]
    a, rho = torch.full_like(d, advantage), d.exp()
    smaller = torch.minimum(a * rho, a * rho.clamp(exp(-0.4), exp(0.4)))
    assert_close(smaller.abs(), a.abs() * clip_log_ratio(d, a, 0.4, 0.4).exp())


def test_the_mean_is_geometric():
    # ratios 2, 4, 1 and one that does not count: the cube root of 8
    clipped = torch.tensor([[2.0, 4.0, 1.0, 1e3]]).log()
    assert_close(geometric_mean_ratio(clipped, MASK[:1]), torch.full((1, 4), 2.0))


def test_by_hand():
    # c = 0.1, 0.4, -0.9, mean -0.4 / 3, loss -2 e^(-0.4/3); c = -0.1, -0.4, 0.9, 0.2, mean 0.15, loss 0.5 e^0.15
    first, second = -2 * exp(-0.4 / 3), 0.5 * exp(0.15)
    batch, out = make_batch(), make_output(D)
    assert_close(GMPO(out, batch), torch.tensor([[first, first, first, 0.0], [second] * 4]))
    # every completion counts the same, whatever its length
    assert_close(Objective({"term": GMPO})(out, batch)[0], torch.tensor((first + second) / 2))


def test_gradient_by_hand():
    """-A ratio / |o| of half the batch, and nothing for the choice that is clipped, in a row or outside the mask."""
    first, second = -2 * exp(-0.4 / 3) / 3 / 2, 0.5 * exp(0.15) / 4 / 2
    expected = torch.tensor([[first, 0.0, first, 0.0], [second, 0.0, second, second]])
    assert_close(gradient(GMPO, D, make_batch()), expected)


def test_metrics_by_hand():
    metrics = GMPO.metrics(make_output(D), make_batch())
    assert_close(metrics["ratio"], torch.tensor([[exp(-0.4 / 3)] * 4, [exp(0.15)] * 4]))
    assert_close(metrics["clip_fraction"], torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]))
    # a choice without an advantage has no gradient to lose
    metrics_without = GMPO.metrics(make_output(D), make_batch((0.0, -0.5)))
    assert_close(metrics_without["clip_fraction"], torch.tensor([[0.0] * 4, [0.0, 1.0, 0.0, 0.0]]))
    # KL(old || new) by k3: rho - 1 - d
    assert_close(metrics["kl"], torch.where(MASK, torch.tensor(D).exp() - 1 - torch.tensor(D), 0.0))


def test_first_step_is_reinforce():
    """At ratio 1 its gradient is that of -A logprob with equal completions."""
    batch, fresh = make_batch(), [[0.0] * 4] * 2
    assert_close(gradient(GMPO, fresh, batch), gradient(PolicyGradient(), fresh, batch), rtol=0, atol=1e-7)


def test_a_sequence_clip_is_another_loss():
    """GSPO cuts the row by its mean: 0.6 of one token and 0 of another is beyond 0.2 for both, GMPO cuts the first."""
    batch = make_batch().with_columns(action_mask=torch.tensor([[True, True, False, False]] * 2))
    d = [[0.6, 0.0, 0.0, 0.0]] * 2
    gspo = ClippedSurrogate(importance_sampling_level="sequence", clip_low=0.2, clip_high=0.2)
    ours = GeometricMeanSurrogate(clip_low=0.2, clip_high=0.2)
    assert (gradient(gspo, d, batch)[0] == 0).all()
    assert gradient(ours, d, batch)[0, 0] == 0 and gradient(ours, d, batch)[0, 1] < 0


def test_it_learns_up_to_the_bounds():
    """A good completion becomes likelier until every log-ratio is at 0.4, a bad one until all are at -0.4."""
    batch, out = make_batch((1.0, -1.0)), make_output([[0.0] * 4] * 2)
    optimizer = torch.optim.SGD([out.logprobs], lr=0.01)
    for _ in range(500):
        optimizer.zero_grad()
        Objective({"term": GMPO})(out, batch)[0].backward()
        optimizer.step()
    bounds = torch.tensor([[0.4], [-0.4]]).expand(2, 4)
    assert_close(out.logprobs.detach() + 1.0, torch.where(MASK, bounds, 0.0), rtol=0, atol=0.005)


@pytest.mark.parametrize("options", [{"clip_low": 0.0}, {"clip_high": -0.1}])
def test_a_bound_is_above_zero(options):
    with pytest.raises(ValueError, match=f"geometric_mean_surrogate.{next(iter(options))} must be > 0"):
        GeometricMeanSurrogate(**options)
