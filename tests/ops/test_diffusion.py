"""Steps of diffusion chains against numbers by hand and against the exact posterior."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.diffusion import cosine_kept, ddim_step, ddpm_step, named_action, noised


def test_the_schedule_falls_from_one():
    kept = cosine_kept(10)
    assert kept[0] == 1 and (kept[1:] < kept[:-1]).all() and kept[-1] < 1e-3
    # level 1 of 10: 1 - beta = f(1) / f(0), f(s) = cos^2((s + .008) / 1.008 pi / 2)
    f = [math.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2 for s in (0.0, 0.1)]
    assert kept[1].item() == pytest.approx(f[1] / f[0], rel=1e-6)


def test_posterior_by_hand():
    """kept .36, after .64: alpha .5625; mean = .8 * .4375 / .64 a + .75 * .36 / .64 x = .546875 a + .421875 x."""
    x, action, kept, after = (torch.tensor(v) for v in (0.8, -0.2, 0.36, 0.64))
    mean, deviation = ddpm_step(x, action, kept, after)
    assert mean.item() == pytest.approx(0.546875 * -0.2 + 0.421875 * 0.8, abs=1e-6)
    assert deviation.item() == pytest.approx(math.sqrt(0.4375 * 0.36 / 0.64), abs=1e-6)


def test_eta_one_is_as_noisy_as_the_posterior_and_has_its_mean():
    action, noise, kept, after = (torch.tensor(v) for v in (-0.2, 1.3, 0.36, 0.64))
    x = noised(action, noise, kept)
    assert_close(ddim_step(action, noise, kept, after, 1.0), ddpm_step(x, action, kept, after))


def test_eta_zero_stays_on_the_line():
    action, noise, kept, after = (torch.tensor(v) for v in (-0.2, 1.3, 0.36, 0.64))
    mean, deviation = ddim_step(action, noise, kept, after, 0.0)
    assert deviation == 0
    assert_close(mean, noised(action, noise, after))


def test_a_bounded_action_takes_the_noise_along():
    x, noise, kept = torch.tensor(1.4), torch.tensor(-0.5), torch.tensor(0.64)
    action, same = named_action(x, noise, kept, None)
    assert action.item() == pytest.approx((1.4 + 0.6 * 0.5) / 0.8) and same == noise
    action, other = named_action(x, noise, kept, 1.0)
    assert action == 1 and other.item() == pytest.approx((1.4 - 0.8) / 0.6)
    assert_close(noised(action, other, kept), x)
