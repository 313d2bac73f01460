"""The KL divergence of Gaussians by hand, and what balancing does to its gradients."""

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence
from torch.testing import assert_close

from mmrl.ops.world_model.latent_kl import balanced_kl, gaussian_kl


def test_kl_by_hand():
    """N([0.5, -1], [0.5, 1]) from N(0, 1).

    First entry: log(1 / 0.5) + (0.25 + 0.25) / 2 - 0.5 = 0.693147 - 0.25; second: 0 + (1 + 1) / 2 - 0.5 = 0.5.
    """
    posterior = torch.tensor([0.5, -1.0]), torch.tensor([0.5, 1.0])
    prior = torch.zeros(2), torch.ones(2)
    assert_close(gaussian_kl(posterior, prior), torch.tensor(0.943147))
    assert_close(balanced_kl(posterior, prior, 5 / 6), torch.tensor(0.943147))
    assert gaussian_kl(posterior, posterior).item() == 0


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(4, 3, 5, generator=generator, dtype=torch.float64)
    mean_p, raw_p, mean_q, raw_q = (part.clone().requires_grad_() for part in numbers)
    return (mean_p, raw_p), (mean_q, raw_q)


def positive(pair):
    return pair[0], pair[1].exp()


def test_kl_is_that_of_torch():
    p, q = (positive(pair) for pair in draw())
    expected = kl_divergence(Independent(Normal(*p), 1), Independent(Normal(*q), 1))
    assert_close(gaussian_kl(p, q), expected)


@pytest.mark.parametrize("balance", [0.0, 0.3, 5 / 6, 1.0])
def test_balancing_scales_the_gradients_of_the_plain_divergence(balance):
    """a of the gradient reaches the prior and 1 - a the posterior: n = 5 gives 5/6 and 1/6."""
    p, q = draw()
    value = balanced_kl(positive(p), positive(q), balance)
    gradients = torch.autograd.grad(value.sum(), [*p, *q], allow_unused=True, materialize_grads=True)
    p, q = draw()
    plain = kl_divergence(Normal(*positive(p)), Normal(*positive(q))).sum(-1)
    expected = torch.autograd.grad(plain.sum(), [*p, *q])
    assert_close(value, plain)
    for part, other, share in zip(gradients, expected, [1 - balance, 1 - balance, balance, balance]):
        assert_close(part, share * other)


def test_without_balancing_the_gradient_is_whole():
    p, q = draw()
    gradients = torch.autograd.grad(balanced_kl(positive(p), positive(q)).sum(), [*p, *q])
    p, q = draw()
    expected = torch.autograd.grad(kl_divergence(Normal(*positive(p)), Normal(*positive(q))).sum(), [*p, *q])
    for part, other in zip(gradients, expected):
        assert_close(part, other)
