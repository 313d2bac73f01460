"""Returns and generalised advantages on padded episodes."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.returns import discounted_returns, generalised_advantages

NAN = float("nan")
R, V = torch.tensor([[0.0, 0.0, 10.0]]), torch.tensor([[1.0, 2.0, 3.0]])
ALL, END = torch.ones(1, 3).bool(), torch.zeros(1)


def test_terminal_episode():
    # gamma .9, lambda .95: delta = (.9*2-1, .9*3-2, 10-3) = (.8, .7, 7); A_1 = .7 + .855*7, A_0 = .8 + .855*A_1
    out = generalised_advantages(R, V, ALL, END, 0.9, 0.95)
    assert_close(out, torch.tensor([[6.515675, 6.685, 7.0]]))
    assert_close(out + V, torch.tensor([[7.515675, 8.685, 10.0]]))


def test_truncated_episode_goes_on_from_its_bootstrap():
    # only the last delta changes: 10 + .9*4 - 3 = 10.6
    out = generalised_advantages(R, V, ALL, torch.tensor([4.0]), 0.9, 0.95)
    a1 = 0.7 + 0.855 * 10.6
    assert_close(out, torch.tensor([[0.8 + 0.855 * a1, a1, 10.6]]))


def test_discounted_returns():
    assert_close(discounted_returns(R, ALL, END, 0.9), torch.tensor([[8.1, 9.0, 10.0]]))
    # cut off with value 4 after it: 10 + .9*4 = 13.6
    assert_close(discounted_returns(R, ALL, torch.tensor([4.0]), 0.9), torch.tensor([[11.016, 12.24, 13.6]]))


def random_case():
    generator = torch.Generator().manual_seed(0)
    reward, values = torch.randn(6, 9, generator=generator), torch.randn(6, 9, generator=generator)
    mask = torch.rand(6, 9, generator=generator) < 0.6
    mask[5] = False
    return reward, values, mask, torch.randn(6, generator=generator)


def test_decay_one_is_return_minus_value():
    reward, values, mask, bootstrap = random_case()
    out = generalised_advantages(reward, values, mask, bootstrap, 0.9, 1.0)
    assert_close(out, torch.where(mask, discounted_returns(reward, mask, bootstrap, 0.9) - values, 0))


@pytest.mark.parametrize("gamma, gae_lambda", [(0.9, 0.8), (1.0, 1.0), (0.5, 0.0)])
def test_equals_the_double_sum(gamma, gae_lambda):
    """A_t = sum_k (gamma gae_lambda)^k delta_{t+k} over the entries inside the mask, written without recursion."""
    reward, values, mask, bootstrap = random_case()
    out = generalised_advantages(reward, values, mask, bootstrap, gamma, gae_lambda)
    for e in range(6):
        r, v = reward[e][mask[e]], values[e][mask[e]]
        following = torch.cat([v[1:], bootstrap[e : e + 1]])[: len(v)]
        delta = r + gamma * following - v
        expected = [sum((gamma * gae_lambda) ** k * delta[t + k] for k in range(len(v) - t)) for t in range(len(v))]
        assert_close(out[e][mask[e]], torch.stack(expected) if expected else v)
    assert (out[~mask] == 0).all()


def test_entries_outside_the_mask_may_be_nan():
    reward, values, mask, bootstrap = random_case()
    dirty = [torch.where(mask, column, NAN) for column in (reward, values)]
    assert_close(
        generalised_advantages(*dirty, mask, bootstrap, 0.9, 0.8),
        generalised_advantages(reward, values, mask, bootstrap, 0.9, 0.8),
    )
    assert_close(discounted_returns(dirty[0], mask, bootstrap, 0.9), discounted_returns(reward, mask, bootstrap, 0.9))
