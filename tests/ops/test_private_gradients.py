import math

import pytest
import torch

from mmrl.ops.private_gradients import clip_example, noisy_mean


def test_clipping_by_hand():
    """C = 1: (3, 4) has norm 5 and becomes (0.6, 0.8); (0.6, 0.8) has norm 1 and stays; 0 stays 0, not 0 / 0."""
    clipped = [clip_example([torch.tensor(g)], 1.0)[0][0] for g in ([3.0, 4.0], [0.6, 0.8], [0.0, 0.0])]
    total = torch.stack(clipped).sum(0)
    torch.testing.assert_close(torch.stack(clipped), torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))
    torch.testing.assert_close(total, torch.tensor([1.2, 1.6]))
    mean = noisy_mean(total, 0.0, 3, torch.Generator())
    torch.testing.assert_close(mean, torch.tensor([0.4, 0.533333]), atol=1e-6, rtol=0)


def test_the_norm_is_over_all_parameters_and_bounds_the_influence_of_an_example():
    gradient = [torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])]
    clipped, norm = clip_example(gradient, 2.0)
    assert norm == 5 and clipped[0] == pytest.approx(1.2) and clipped[1].tolist() == [[0.0, pytest.approx(1.6)]]
    for size in (1e-3, 1.0, 1e6):
        parts, _ = clip_example([torch.randn(7) * size, torch.randn(2, 3) * size], 0.5)
        assert math.sqrt(sum(float(part.square().sum()) for part in parts)) <= 0.5 * (1 + 1e-6)


def test_noise_on_the_mean_has_the_promised_deviation():
    """sigma = 0.8, C = 1, B = 3: 0.8 / 3 = 0.266667; of n draws the deviation is known to 1 / sqrt(2 n)."""
    noise = noisy_mean(torch.zeros(200_000), 0.8, 3, torch.Generator().manual_seed(1))
    assert float(noise.std()) == pytest.approx(0.266667, rel=4 / math.sqrt(400_000))
    assert abs(float(noise.mean())) < 4 * 0.266667 / math.sqrt(200_000)
    assert float((noise.abs() > 2 * 0.266667).float().mean()) == pytest.approx(0.0455, abs=0.002)  # of a normal
