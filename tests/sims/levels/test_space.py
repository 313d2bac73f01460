"""Levels are numbered: every seed has one, and every level has seeds."""

import numpy as np
import pytest

from sims.levels.space import LevelSpace

PLANE = LevelSpace({"mass_kg": (1, 3), "length_m": (0.0, 10.0)})


def test_codes_by_hand():
    # two parameters: 16 bits each, 65535 steps; mass 2 is step 32767.5, which is rounded to the even 32768
    assert PLANE.bits == 16
    code = PLANE.encode({"mass_kg": 3.0, "length_m": 0.0}, start=7)
    assert code == (65535 << 16) << 12 | 7
    assert PLANE.decode(code << 1) == PLANE.decode(code << 1 | 1) == {"mass_kg": 3.0, "length_m": 0.0}
    half = PLANE.encode({"mass_kg": 2.0, "length_m": 10.0}, start=4096 + 5)
    assert half == (32768 << 16 | 65535) << 12 | 5
    assert PLANE.decode(half << 1) == {"mass_kg": 1 + 2 * 32768 / 65535, "length_m": 10.0}
    # 48 // 5 = 9 bits; 12 parameters have 4
    assert LevelSpace({name: (0, 1) for name in "abcde"}).bits == 9
    assert LevelSpace({name: (0, 1) for name in "abcdefghijkl"}).bits == 4


def test_a_level_is_found_again_within_half_a_step():
    rng = np.random.default_rng(0)
    for dims in (1, 2, 3, 4, 7, 12):
        space = LevelSpace({f"p{k}": (-2.0, 3.0) for k in range(dims)})
        for _ in range(50):
            level = dict(zip(space.bounds, rng.uniform(-2, 3, dims).tolist()))
            code = space.encode(level, int(rng.integers(2**31)))
            assert 0 <= code < 2**60
            again = space.decode(code << 1)
            # half of 5 / (2^b - 1), and the last bits of the arithmetic
            assert all(abs(again[name] - level[name]) <= 2.5 / (2**space.bits - 1) + 1e-12 for name in level)
            assert space.encode(again, 0) == code >> 12 << 12  # a numbered level is itself


def test_uniform_seeds_have_uniform_levels():
    seeds = np.random.default_rng(1).integers(2**60, size=4000)
    drawn = np.array([list(PLANE.decode(int(seed) << 1).values()) for seed in seeds])
    # mean and variance of a uniform number on [0, 1]: 1/2, 1/12; standard errors .0046 and .0012
    scaled = (drawn - [1, 0]) / [2, 10]
    assert abs(scaled.mean(0) - 0.5).max() < 0.02 and abs(scaled.var(0) - 1 / 12).max() < 0.005
    assert abs(np.corrcoef(scaled.T)[0, 1]) < 0.06


def test_the_grid_has_the_centres_of_its_cells():
    # halves of [1, 3] have the centres 1.5 and 2.5, those of [0, 10] 2.5 and 7.5; the last parameter runs first
    assert [tuple(PLANE.grid(2, i).values()) for i in range(4)] == [(1.5, 2.5), (1.5, 7.5), (2.5, 2.5), (2.5, 7.5)]
    assert PLANE.scale({"mass_kg": 1.5, "length_m": 10.0}).tolist() == [-0.5, 1.0]


def test_bad_boxes_and_levels_are_refused():
    for bounds in ({}, {f"p{k}": (0, 1) for k in range(13)}):
        with pytest.raises(ValueError, match="1 to 12 parameters"):
            LevelSpace(bounds)
    for pair in ((1, 1), (2, 1), (0,), 3, "01", (0, float("inf")), (None, 1)):
        with pytest.raises(ValueError, match=r"levels\.g must be two ascending numbers"):
            LevelSpace({"g": pair})
    with pytest.raises(ValueError, match=r"must name \['length_m', 'mass_kg'\], got \['mass_kg'\]"):
        PLANE.encode({"mass_kg": 2.0}, 0)
    with pytest.raises(ValueError, match=r"mass_kg=4 is out of its bounds \[1, 3\]"):
        PLANE.encode({"mass_kg": 4.0, "length_m": 1.0}, 0)
