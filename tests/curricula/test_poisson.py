import math

import pytest

from mmrl.curricula.poisson import PoissonSampling
from tests.curricula.test_sampler import at


def test_every_problem_is_drawn_alone_with_the_same_probability():
    """2,000 draws of 40 problems at rate 0.2: frequencies, sizes and pairs are those of independent coins."""
    draws = [set(PoissonSampling().select(8, at(i, size=40, seed=3))) for i in range(2000)]
    sizes = [len(one) for one in draws]
    mean, variance = sum(sizes) / 2000, sum((s - 8) ** 2 for s in sizes) / 2000
    assert abs(mean - 8) < 4 * math.sqrt(6.4 / 2000) and variance == pytest.approx(40 * 0.2 * 0.8, rel=0.15)
    frequency = [sum(k in one for one in draws) / 2000 for k in range(40)]
    assert max(abs(f - 0.2) for f in frequency) < 4.5 * math.sqrt(0.16 / 2000)
    both = sum(3 in one and 4 in one for one in draws) / 2000
    assert both == pytest.approx(0.04, abs=4 * math.sqrt(0.04 / 2000))


def test_draws_follow_from_the_key_and_a_second_draw_is_refused():
    curriculum = PoissonSampling()
    first = curriculum.select(5, at(4))
    assert first == PoissonSampling().select(5, at(4)) != PoissonSampling().select(5, at(5))
    with pytest.raises(ValueError, match=r"once per iteration.*leave it out of data\.transforms"):
        curriculum.select(5, at(4))
    with pytest.raises(ValueError, match=r"11 problems on average.*has 10; lower data\.num_prompts"):
        curriculum.select(11, at(6))


def test_an_empty_draw_is_an_error():
    with pytest.raises(ValueError, match=r"selected no problem in iteration \d+.*raise data\.num_prompts \(1\)"):
        for iteration in range(50):
            PoissonSampling().select(1, at(iteration))
