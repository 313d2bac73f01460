"""Values of schedules at an iteration, and what controllers make of a metric."""

import pytest

from mmrl.schedules import AdaptiveKL, Alternating, Cosine, CosineCycle, EntropyBand, Linear, Piecewise

LAWS = [
    lambda: Linear(1.0, 0.1, 5),
    lambda: Linear(1.0, 0.1, 5, delay=2),
    lambda: Cosine(1.0, 0.1, 5, delay=2),
    lambda: Piecewise({1: 1.0, 3: 0.5}),
    lambda: Piecewise({0: 1.0, 3: 0.5}, steps=True),
    lambda: Alternating([1.0, 0.5, 0.1], 2),
    lambda: CosineCycle(1.0, 0.1, 6),
    lambda: AdaptiveKL(0.2, target=0.05),
    lambda: EntropyBand(0.01, low=0.5, high=1.0),
]


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (Linear(1.0, 0.0, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (Linear(1.0, 0.0, 2, delay=1), [1, 1, 0.5, 0]),
        (Cosine(1.0, 0.0, 2), [1, 0.5, 0, 0]),
        (Piecewise({1: 1.0, 3: 5.0}), [1, 1, 3, 5, 5]),
        (Piecewise({0: 1.0, 2: 5.0}, steps=True), [1, 1, 5, 5]),
        (Alternating([16, 8], 2), [16, 16, 8, 8, 16]),
        (CosineCycle(3.0, 3.0, 5), [3] * 7),
    ],
)
def test_values(schedule, values):
    assert [schedule(i) for i in range(len(values))] == pytest.approx(values)


def test_a_cosine_cycle_by_hand():
    # 8192 to 16384 in 640 iterations: the middle of a cycle is the shortest, a quarter of it half way
    schedule = CosineCycle(high=16384, low=8192, period=640)
    assert [schedule(i) for i in (0, 160, 320, 480, 640)] == pytest.approx([16384, 12288, 8192, 12288, 16384])


def test_the_kl_coefficient_follows_the_target():
    """Ziegler et al.: the relative error, clipped to 0.2, times the gain."""
    schedule = AdaptiveKL(start=0.5, target=0.1, gain=0.1)
    schedule.observe({"train/kl/mean": 0.11})
    assert schedule(1) == pytest.approx(0.5 * 1.01)
    schedule.observe({"train/kl/mean": 9.0})
    assert schedule(2) == pytest.approx(0.5 * 1.01 * 1.02)
    again = AdaptiveKL(start=0.5, target=0.1)
    again.load_state_dict(schedule.state_dict())
    assert again(2) == schedule(2)


def test_the_entropy_bonus_stays_in_its_limits():
    schedule = EntropyBand(start=0.0, low=1.0, high=2.0, step=0.1, max_value=0.15)
    seen = []
    for entropy in (0.5, 0.5, 1.5, 3.0, 3.0):
        schedule.observe({"train/entropy/mean": entropy})
        seen.append(schedule(0))
    assert seen == pytest.approx([0.1, 0.15, 0.15, 0.05, 0.0])


def test_a_metric_that_is_not_there_is_refused_where_something_was_learned():
    schedule = AdaptiveKL(start=0.5, target=0.1)
    schedule.observe({"train/learning_rate": 0.1, "rollout/rows": 0.0})  # an iteration without rows
    with pytest.raises(ValueError, match=r"metric='train/kl/mean' is no metric of this run; it has \['train/policy'\]"):
        schedule.observe({"train/policy": 1.0})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(1, 0, 0),
        lambda: Linear(1, 0, 2, delay=-1),
        lambda: Piecewise({}),
        lambda: Alternating([], 1),
        lambda: Alternating([1], 0),
        lambda: CosineCycle(2, 1, 0),
        lambda: AdaptiveKL(0.0, 0.1),
        lambda: EntropyBand(0.1, 2.0, 1.0),
        lambda: EntropyBand(2.0, 1.0, 2.0),
    ],
)
def test_arguments_that_mean_nothing_are_refused(make):
    with pytest.raises(ValueError):
        make()
