"""Steps of flow chains against numbers by hand, and their marginals on a Gaussian whose velocity is known."""

import math

import pytest
import torch
from torch.func import jvp
from torch.testing import assert_close

from mmrl.ops.flow import (
    bounded_std,
    cps_step,
    endpoints,
    interpolate,
    mean_velocity,
    score,
    sde_scale,
    sde_step,
    time_grid,
)
from mmrl.ops.gaussian import normal_entropy, normal_logprob

X, V = torch.tensor(0.8), torch.tensor(1.2)


def at(i: int, steps: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    grid = time_grid(steps)
    return grid[i], grid[i + 1]


def test_the_grid_runs_from_noise_to_action():
    assert time_grid(4).tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]


@pytest.mark.parametrize("i", [0, 1, 3])
def test_without_noise_it_is_the_ode(i):
    """x - v / K = .8 - 1.2 / 4 = .5 at every time."""
    time, next_time = at(i)
    mean, std = sde_step(X, V, time, next_time, torch.tensor(0.0))
    assert mean.item() == pytest.approx(0.5) and std == 0
    mean, std = cps_step(X, V, time, next_time, torch.tensor(0.0))
    assert mean.item() == pytest.approx(0.5) and std == 0


@pytest.mark.parametrize(
    "i, scale, mean, std",
    [
        # t = 1: s = .5 sqrt(1 / .25) = 1; a = -.4, e = .8: .25 (-.4) + (.75 - 1 * .25 / 2) .8 = -.1 + .5
        (0, 1.0, 0.4, 0.5),
        # t = .75: s = .5 sqrt 3; a = -.1, e = 1.1: .5 (-.1) + (.5 - .75 * .25 / 1.5) 1.1 = -.05 + .4125
        (1, 0.866025, 0.3625, 0.433013),
        # t = .25: s = .5 sqrt(1 / 3); a = .5, e = 1.7: .5 + (0 - .25 / 3 * .25 / .5) 1.7 = .5 - .070833
        (3, 0.288675, 0.429167, 0.144338),
    ],
)
def test_sde_steps_by_hand(i, scale, mean, std):
    time, next_time = at(i)
    s = sde_scale(time, 0.75, 0.5)
    assert s.item() == pytest.approx(scale, abs=1e-6)
    out = sde_step(X, V, time, next_time, s)
    assert [part.item() for part in out] == pytest.approx([mean, std], abs=1e-6)


@pytest.mark.parametrize(
    "steps, expected",
    [
        # std_i = a sqrt(t / (1 - t)) sqrt(1 / K); the first one is a for every K
        (4, [0.50, 0.43, 0.25, 0.14]),
        (5, [0.50, 0.45, 0.27, 0.18, 0.11]),
        (10, [0.50, 0.47, 0.32, 0.24, 0.19, 0.16, 0.13, 0.10, 0.08, 0.05]),
    ],
)
def test_sde_stds(steps, expected):
    time = time_grid(steps)[:-1]
    out = sde_scale(time, 1 - 1 / steps, 0.5) * math.sqrt(1 / steps)
    # 0.472 and .167 are rounded down and up in the list: two digits
    assert_close(out, torch.tensor(expected), atol=6e-3, rtol=0)


def test_cps_steps_by_hand():
    """t = .75, l = .5: cos = sin = sqrt(.5); a = -.1, e = 1.1: .5 (-.1) + .5 * .707107 * 1.1 = .338909; std .353553."""
    mean, std = cps_step(X, V, *at(1), torch.tensor(0.5))
    assert [mean.item(), std.item()] == pytest.approx([0.338909, 0.353553], abs=1e-6)
    assert cps_step(X, V, *at(3), torch.tensor(0.5))[1] == 0


def test_both_endpoints_lie_on_the_line():
    action, noise, time = torch.tensor(0.3), torch.tensor(-1.1), torch.tensor(0.4)
    x = interpolate(action, noise, time)
    assert_close(endpoints(x, noise - action, time), (action, noise))
    assert score(x, noise - action, time).item() == pytest.approx(1.1 / 0.4)


def test_bounds_of_a_learned_std():
    # the middle is the geometric mean: sqrt(.08 * .16)
    out = bounded_std(torch.tensor([-50.0, 0.0, 50.0]), 0.08, 0.16)
    assert out.tolist() == pytest.approx([0.08, 0.113137, 0.16], rel=1e-5)


def test_gaussian_density_by_hand():
    # log N(.6; .3625, .433013) = -(.2375 / .433013)^2 / 2 - ln .433013 - .918939 = -.232367
    x, mean, std = (torch.tensor(v) for v in (0.6, 0.3625, 0.433013))
    assert normal_logprob(x, mean, std).item() == pytest.approx(-0.232367, abs=2e-6)
    # 1.418939 + ln .5
    assert normal_entropy(torch.tensor(0.5)).item() == pytest.approx(0.725791, abs=1e-6)


def test_a_forced_step_has_no_density_and_no_gradient():
    x, mean = torch.tensor([0.3, 0.4]), torch.tensor([0.1, 0.2], requires_grad=True)
    std = torch.tensor([0.0, 0.5], requires_grad=True)
    (normal_logprob(x, mean, std) + normal_entropy(std)).sum().backward()
    assert mean.grad[0] == 0 and std.grad[0] == 0
    assert mean.grad[1] != 0 and std.grad[1] != 0


MU, SIGMA = 0.5, 0.3


def exact_velocity(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """E[noise - action | x] for action ~ N(.5, .3^2), noise ~ N(0, 1): jointly Gaussian with x = (1 - t) a + t e."""
    variance = (1 - time) ** 2 * SIGMA**2 + time**2
    gap = x - (1 - time) * MU
    return gap * time / variance - (MU + gap * (1 - time) * SIGMA**2 / variance)


def final_std(kind: str, steps: int, count: int = 40_000) -> float:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, generator=generator)
    for i in range(steps):
        time, next_time = at(i, steps)
        v = exact_velocity(x, time)
        if kind == "cps":
            mean, std = cps_step(x, v, time, next_time, torch.tensor(0.5))
        else:
            level = 0.5 if kind == "sde" else 0.0
            mean, std = sde_step(x, v, time, next_time, sde_scale(time, 1 - 1 / steps, level))
        x = mean + std * torch.randn(count, generator=generator)
    assert x.mean().item() == pytest.approx(MU, abs=0.02 if steps < 100 else 0.008)
    return x.std().item()


@pytest.mark.parametrize(
    "kind, steps, expected",
    [
        ("ode", 4, 0.177),
        ("sde", 4, 0.237),
        ("cps", 4, 0.172),
        ("ode", 10, 0.247),
        ("sde", 10, 0.271),
        ("cps", 10, 0.229),
        ("ode", 400, 0.297),
        ("sde", 400, 0.301),
        ("cps", 400, 0.274),
    ],
)
def test_marginals_with_the_exact_velocity(kind, steps, expected):
    """Few steps are too narrow; with many, ODE and SDE meet the data's .3, CPS does not.

    The standard error of a std of 40,000 draws is 0.3 / sqrt(80,000) = 0.0011; the numbers have three digits.
    """
    assert final_std(kind, steps) == pytest.approx(expected, abs=0.004)


def linear(x, time, end_time):
    return 0.1 + 0.5 * x - 0.2 * end_time + 0.3 * time


def test_average_velocities_by_hand():
    """u = .1 + .5 x - .2 r + .3 t at a = .4, e = -.6, t = .8, r = .2: x = -.4, v = -1, u = .1.

    du/dt along v is .5 (-1) + .3 = -.2, so the target is -1 - .6 (-.2) = -.88 and the squared error .98^2 = .9604.
    """
    action, noise, time, end_time = (torch.tensor(value) for value in (0.4, -0.6, 0.8, 0.2))
    x, velocity = interpolate(action, noise, time), noise - action
    answer, rate = jvp(lambda x, t: linear(x, t, end_time), (x, time), (velocity, torch.tensor(1.0)))
    target = mean_velocity(velocity, rate, time, end_time)
    assert [x.item(), answer.item(), target.item()] == pytest.approx([-0.4, 0.1, -0.88], abs=1e-6)
    assert (answer - target).square().item() == pytest.approx(0.9604, abs=1e-6)
    # over no time it is the velocity
    assert mean_velocity(velocity, rate, time, time) == velocity
    # one step from noise: -.6 - u(-.6, 0, 1) = -.6 - (.1 - .3 + .3)
    start, one, zero = (torch.tensor(value) for value in (-0.6, 1.0, 0.0))
    mean, _ = sde_step(start, linear(start, one, zero), one, zero, zero)
    assert mean.item() == pytest.approx(-0.7, abs=1e-6)


def carried(x, time, end_time):
    """Where the ODE of the Gaussian above leads x: marginals N((1 - t) mu, (1 - t)^2 s^2 + t^2)."""
    width = [((1 - t) ** 2 * SIGMA**2 + t**2).sqrt() for t in (time, end_time)]
    return (1 - end_time) * MU + (x - (1 - time) * MU) * width[1] / width[0]


@pytest.mark.parametrize("time, end_time", [(1.0, 0.0), (0.7, 0.2), (0.4, 0.4)])
def test_the_average_velocity_of_a_known_flow_is_its_own_target(time, end_time):
    """u = (x_t - x_r) / (t - r) fulfils u = v - (t - r) du/dt, and one step with it is the whole flow."""
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    t, r = (torch.full_like(x, value) for value in (time, end_time))

    def average(x, t):
        return torch.where(t > r, (x - carried(x, t, r)) / (t - r).clamp(min=1e-9), exact_velocity(x, t))

    velocity = exact_velocity(x, t)
    answer, rate = jvp(average, (x, t), (velocity, torch.ones_like(t)))
    assert_close(mean_velocity(velocity, rate, t, r), answer, rtol=1e-9, atol=1e-9)
    assert_close(x - (t - r) * answer, carried(x, t, r), rtol=1e-9, atol=1e-9)
