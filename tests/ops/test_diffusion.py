"""Steps of diffusion chains against numbers by hand and against the exact posterior."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.diffusion import add_noise, cosine_alphas_cumprod, ddim_step, ddpm_step, predict_x0


def test_the_schedule_falls_from_one():
    alpha_cumprod = cosine_alphas_cumprod(10)
    assert alpha_cumprod[0] == 1 and (alpha_cumprod[1:] < alpha_cumprod[:-1]).all() and alpha_cumprod[-1] < 1e-3
    # level 1 of 10: 1 - beta = f(1) / f(0), f(s) = cos^2((s + .008) / 1.008 pi / 2)
    f = [math.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2 for s in (0.0, 0.1)]
    assert alpha_cumprod[1].item() == pytest.approx(f[1] / f[0], rel=1e-6)


def test_posterior_by_hand():
    """a .36, b .64: alpha .5625; mean = .8 * .4375 / .64 a + .75 * .36 / .64 x = .546875 a + .421875 x."""
    x, action, alpha_cumprod, alpha_cumprod_prev = (torch.tensor(v) for v in (0.8, -0.2, 0.36, 0.64))
    mean, std = ddpm_step(x, action, alpha_cumprod, alpha_cumprod_prev)
    assert mean.item() == pytest.approx(0.546875 * -0.2 + 0.421875 * 0.8, abs=1e-6)
    assert std.item() == pytest.approx(math.sqrt(0.4375 * 0.36 / 0.64), abs=1e-6)


def test_eta_one_is_as_noisy_as_the_posterior_and_has_its_mean():
    action, noise, alpha_cumprod, alpha_cumprod_prev = (torch.tensor(v) for v in (-0.2, 1.3, 0.36, 0.64))
    x = add_noise(action, noise, alpha_cumprod)
    assert_close(
        ddim_step(action, noise, alpha_cumprod, alpha_cumprod_prev, 1.0),
        ddpm_step(x, action, alpha_cumprod, alpha_cumprod_prev),
    )


def test_eta_zero_stays_on_the_line():
    action, noise, alpha_cumprod, alpha_cumprod_prev = (torch.tensor(v) for v in (-0.2, 1.3, 0.36, 0.64))
    mean, std = ddim_step(action, noise, alpha_cumprod, alpha_cumprod_prev, 0.0)
    assert std == 0
    assert_close(mean, add_noise(action, noise, alpha_cumprod_prev))


def test_a_bounded_action_takes_the_noise_along():
    x, noise, alpha_cumprod = torch.tensor(1.4), torch.tensor(-0.5), torch.tensor(0.64)
    action, same = predict_x0(x, noise, alpha_cumprod, None)
    assert action.item() == pytest.approx((1.4 + 0.6 * 0.5) / 0.8) and same == noise
    action, other = predict_x0(x, noise, alpha_cumprod, 1.0)
    assert action == 1 and other.item() == pytest.approx((1.4 - 0.8) / 0.6)
    assert_close(add_noise(action, other, alpha_cumprod), x)
