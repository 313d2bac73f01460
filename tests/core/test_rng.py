"""Draws that belong to their keys."""

import numpy as np
import torch

from mmrl.core.rng import Noise, derive_rng, derive_seed


def splitmix64(seed: int, number: int) -> int:
    """The number-th output of splitmix64 in plain integers: an independent reading of the published algorithm."""
    z = (seed + number * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_splitmix64_is_the_published_one():
    # first output for seed 1234567, from the reference implementation's own test values
    assert splitmix64(1234567, 1) == 6457827717110365317


def test_noise_is_splitmix64():
    drawn = Noise([1234567, 7]).uniform(3)
    for row, seed in enumerate((1234567, 7)):
        for k in range(3):
            assert drawn[row, k] == ((splitmix64(seed, k + 1) >> 41) + 0.5) / 2**23


def test_a_row_draws_alike_alone_and_in_company():
    seeds = [derive_seed(0, i) for i in range(5)]
    together = Noise(seeds)
    first, second = together.uniform(4), together.uniform(2, 3)
    for i, seed in enumerate(seeds):
        alone = Noise([seed])
        assert torch.equal(alone.uniform(4)[0], first[i])
        assert torch.equal(alone.uniform(2, 3)[0], second[i])
    whole = Noise(seeds).uniform(10)
    assert torch.equal(whole[:, :4], first) and torch.equal(whole[:, 4:], second.flatten(1))


def test_some_rows_go_on_where_they_stand():
    noise = Noise([1, 2, 3])
    noise.uniform(5)
    part = noise[np.array([2, 0])]
    expected = noise.uniform(2)
    assert torch.equal(part.uniform(2), expected[[2, 0]])


def test_the_numbers_look_uniform_and_normal():
    """Mean 1/2, variance 1/12; mean 0, variance 1: within five standard errors of 100,000 draws."""
    n = 100_000
    u = Noise([3]).uniform(n)
    assert u.min() > 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 * (1 / 12 / n) ** 0.5
    assert abs(u.var() - 1 / 12) < 5 * (1 / 180 / n) ** 0.5
    z = Noise([4]).normal(n)
    assert abs(z.mean()) < 5 / n**0.5 and abs(z.var() - 1) < 5 * (2 / n) ** 0.5 and z.isfinite().all()


def test_seeds_belong_to_their_keys():
    keys = [
        (0, "train", 1),
        (0, "train", 2),
        (1, "train", 1),
        (0, "eval", 1),
        (0, "train1"),
        ("0", "train", 1),
        (0, "train"),
    ]
    assert len({derive_seed(*key) for key in keys}) == len(keys)
    assert derive_seed(0, "train", 1) == derive_seed(0, "train", 1) < 2**64
    assert derive_rng(1).integers(1 << 60) == derive_rng(1).integers(1 << 60) != derive_rng(2).integers(1 << 60)
