"""The information cap and its multiplier by hand, and that the multiplier finds the cap."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.methods.world_models.repo import (
    ConstrainedStates,
    InformationCap,
    InformationDual,
    RecordedInformation,
    prior_share,
)
from mmrl.objectives.objective import Objective
from mmrl.ops.world_model.latent_kl import balanced_kl
from mmrl.policies.control.critic import LagrangeMultiplier

BATCH = Batch(action_mask=torch.ones(1, 1, dtype=torch.bool), loss_weights=torch.ones(1, 1))


def output(information, log_multiplier):
    nothing = torch.zeros(1, 1)
    return PolicyOutput(nothing, nothing, extra={"information": information, "log_multiplier": log_multiplier})


def loss_of(term, information, log_multiplier):
    return Objective({"term": term}).total(output(information, log_multiplier), BATCH)[0]


def test_the_prior_learns_five_times_as_fast():
    """n = 5: a = 5/6, and (1 - a) = 1/6 of the gradient reaches the posterior."""
    assert prior_share(5.0) == pytest.approx(5 / 6)
    mean_p, mean_q = torch.tensor([1.0], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    kl = balanced_kl((mean_p, torch.ones(1)), (mean_q, torch.ones(1)), prior_share(5.0))
    # KL = (mean_p - mean_q)^2 / 2, whose slopes are 1 and -1
    assert_close(torch.autograd.grad(kl, [mean_p, mean_q]), (torch.tensor([1 / 6]), torch.tensor([-5 / 6])))
    assert ConstrainedStates(5.0).balance == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="prior_speed must be > 0"):
        prior_share(0.0)


def test_cap_and_dual_by_hand():
    """KL of N([0.5, -1], [0.5, 1]) from N(0, 1) is 0.943147; epsilon 0.5 leaves 0.443147.

    d cap / d KL = beta; d dual / d log beta = -0.443147, so that descent raises log beta.
    """
    posterior = torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[0.5, 1.0]]])
    prior = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    kl = balanced_kl(posterior, prior, 5 / 6).requires_grad_()
    log_beta = torch.tensor([0.2], dtype=torch.float32).log().requires_grad_()
    cap = loss_of(InformationCap(0.5), kl, log_beta)
    assert_close(cap.item(), 0.2 * 0.443147, rtol=1e-5, atol=1e-6)
    slopes = torch.autograd.grad(cap, [kl, log_beta], allow_unused=True)
    assert_close(slopes[0], torch.tensor([[0.2]]))
    assert slopes[1] is None
    dual = loss_of(InformationDual(0.5), kl, log_beta)
    slopes = torch.autograd.grad(dual, [kl, log_beta], allow_unused=True)
    assert slopes[0] is None
    assert_close(slopes[1], torch.tensor([-0.443147]), rtol=1e-5, atol=1e-6)


def test_below_the_cap_the_multiplier_falls():
    """Equal distributions: KL 0, violation -epsilon, and the slope of log beta is epsilon."""
    equal = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    log_beta = torch.zeros(1, requires_grad=True)
    dual = loss_of(InformationDual(0.5), balanced_kl(equal, equal, 5 / 6), log_beta)
    assert_close(torch.autograd.grad(dual, log_beta)[0], torch.tensor([0.5]))
    with pytest.raises(ValueError, match="epsilon must be > 0"):
        InformationCap(0.0)


def test_the_multiplier_finds_the_cap():
    """Maximise sqrt(KL) with KL capped at 2: the Lagrangian's saddle is KL = 2, beta = 1 / (2 sqrt 2)."""
    information, multiplier = torch.full((1, 1), 0.5, requires_grad=True), LagrangeMultiplier(0.1)
    primal, dual = torch.optim.SGD([information], 0.3), torch.optim.SGD(multiplier.parameters(), 0.1)
    for _ in range(500):
        primal.zero_grad()
        (InformationCap(2.0)(output(information, multiplier.log), BATCH) - information.sqrt()).backward()
        primal.step()
        dual.zero_grad()
        InformationDual(2.0)(output(information, multiplier.log), BATCH).backward()
        dual.step()
    assert_close(information.item(), 2.0, rtol=0.01, atol=0)
    assert_close(multiplier().item(), 2**-1.5, rtol=0.01, atol=0)


def test_the_cap_and_its_numbers_inside_the_mask():
    """beta = .2 and epsilon = .5: .2 (2 - .5) = .3 inside, 0 outside; the multiplier's step reads the same numbers."""
    batch = Batch(action_mask=torch.tensor([[True, False]]), information=torch.tensor([[2.0, torch.nan]]))
    log_beta = torch.tensor([0.2]).log().requires_grad_()
    ctx = SimpleNamespace(models={"information_multiplier": SimpleNamespace(log=log_beta)})
    out = RecordedInformation()(batch, ctx)
    assert out.extra["log_multiplier"] is log_beta and out.logprobs.tolist() == [[0.0, 0.0]]
    cap = InformationCap(0.5)(out, batch)
    assert_close(cap, torch.tensor([[0.3, 0.0]]))
    metrics = InformationCap(0.5).metrics(out, batch)
    assert not cap.requires_grad and not metrics["beta"].requires_grad
    assert_close(metrics, {"nats": torch.tensor([[2.0, 0.0]]), "beta": torch.tensor([[0.2, 0.2]])})
    dual = InformationDual(0.5)(out, batch)  # -log(.2) 1.5 = 2.414157
    assert_close(dual, torch.tensor([[2.414157, 0.0]]))
    (slope,) = torch.autograd.grad(dual.sum(), log_beta)
    assert_close(slope, torch.tensor([-1.5]))
