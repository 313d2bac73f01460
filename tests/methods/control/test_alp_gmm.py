"""ALP-GMM: learning progress by hand, the mixture against brute force, and levels where returns change."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from mmrl.methods.control.alp_gmm import ALPGMM, LevelMixture, absolute_progress, component_probs, fit_mixture
from tests.curricula.test_levels import ended, levels, on_levels

LAWS = [lambda: ALPGMM(fit_rate=4, components=2)]


def test_progress_by_hand():
    levels = np.array([[0.1], [0.2], [0.5], [0.7], [0.8], [0.9]])
    returns = np.array([0.0, 1.0, 0.5, 2.0, 3.0, 4.0])
    # the nearest of .55 is .5, with the return .5: |.8 - .5| = .3
    assert absolute_progress(levels, returns, np.array([0.55]), 0.8) == pytest.approx(0.3)
    assert absolute_progress(levels, returns, np.array([0.55]), 0.1) == pytest.approx(0.4)
    assert absolute_progress(levels[:5], returns[:5], np.array([0.55]), 0.8) == 0.0  # five are too few


def test_components_in_proportion_to_their_progress():
    assert component_probs(np.array([0.1, 0.3])).tolist() == pytest.approx([0.25, 0.75])
    assert component_probs(np.array([0.0, 0.0])).tolist() == [0.5, 0.5]
    # a fitted mean may be below zero by rounding
    assert component_probs(np.array([-1e-9, 0.2])).tolist() == [0.0, 1.0]


def test_the_nearest_level_is_that_of_a_search_by_hand():
    rng = np.random.default_rng(0)
    levels, returns = rng.random((200, 3)), rng.random(200)
    for _ in range(30):
        level, value = rng.random(3), float(rng.random())
        distances = [sum((a - b) ** 2 for a, b in zip(other, level)) for other in levels]
        nearest = min(range(200), key=distances.__getitem__)
        assert absolute_progress(levels, returns, level, value) == abs(value - returns[nearest])


def log_likelihood(mixture, weights, vectors):
    densities = [
        weight * multivariate_normal(mean, covariance).pdf(vectors)
        for weight, mean, covariance in zip(weights, mixture.means, mixture.covariances)
    ]
    return np.log(sum(densities)).sum()


def test_the_mixture_has_the_lowest_aic_of_all_numbers_of_components():
    rng = np.random.default_rng(3)
    centres = np.array([[0.2, 0.2, 0.0], [0.8, 0.2, 0.5], [0.5, 0.8, 1.0]])
    vectors = np.concatenate([centre + 0.03 * rng.standard_normal((60, 3)) for centre in centres])
    mixture = fit_mixture(vectors, 6, seed=0)
    assert len(mixture.means) == 3
    order = mixture.means[:, 2].argsort()
    assert np.abs(mixture.means[order] - centres).max() < 0.03
    assert np.abs(mixture.covariances - 0.03**2 * np.eye(3)).max() < 6e-4
    # AIC = 2 k - 2 log L, with k = K - 1 weights, 3 K means and 6 K entries of covariances
    values = {}
    for count in range(2, 7):
        fit = GaussianMixture(count, random_state=0).fit(vectors)
        likelihood = log_likelihood(LevelMixture(fit.means_, fit.covariances_), fit.weights_, vectors)
        values[count] = 2 * (10 * count - 1) - 2 * likelihood
    assert min(values, key=values.__getitem__) == 3


def test_draws_are_those_of_the_components():
    means, covariances = np.array([[0.2, 0.1], [0.8, 0.3]]), np.array([np.diag([1e-4, 1.0]), np.diag([4e-4, 1.0])])
    rng = np.random.default_rng(1)
    drawn = np.array([LevelMixture(means, covariances).draw(rng) for _ in range(3000)])
    low = drawn[drawn < 0.5]
    # a quarter near .2 with a deviation of .01, the others near .8 with .02; standard error of the share .008
    assert drawn.shape == (3000, 1) and abs(len(low) / 3000 - 0.25) < 0.03
    assert abs(low.mean() - 0.2) < 0.002 and abs(low.std() - 0.01) < 0.001
    assert abs(drawn[drawn > 0.5].std() - 0.02) < 0.002


def learn(teacher, rounds, returns, count=50):
    """Play rounds in which an episode at (steps, gift) has a return; the levels of the last round."""
    for number in range(rounds):
        drawn = levels(teacher, count, on_levels(number))
        teacher.observe([[ended(*level, **{"return": returns(number, *level)})] for level in drawn])
    return drawn


def test_levels_are_drawn_where_returns_change():
    rng = np.random.default_rng(2)

    def returns(number, steps, gift):
        """Between 2 and 3 steps the policy learns something new all the time, else the return never changes."""
        return float(rng.random()) if 2 <= steps <= 3 else 7.0 * (steps > 3)

    drawn = learn(ALPGMM(fit_rate=100, components=5), 16, returns, 50)
    drawn = np.concatenate([drawn, levels(ALPGMM(), 50)])
    inside = (drawn[:50, 0] >= 1.9) & (drawn[:50, 0] <= 3.1)
    uniform = (drawn[50:, 0] >= 1.9) & (drawn[50:, 0] <= 3.1)
    # 1.2 of the 4 steps by chance
    assert uniform.mean() < 0.5 and inside.mean() > 0.6


def test_levels_are_uniform_before_the_first_fit_and_at_the_random_ratio():
    teacher = ALPGMM(fit_rate=60, components=2, random_ratio=0.5)
    learn(teacher, 1, lambda number, steps, gift: 0.0, 50)
    assert teacher.mixture is None
    learn(teacher, 1, lambda number, steps, gift: 0.0, 10)
    assert teacher.mixture is not None and teacher.progress.tolist() == [0.0] * 60
    teacher.mixture = LevelMixture(np.array([[0.5, 0.5, 1.0]]), np.array([1e-12 * np.eye(3)]))
    drawn = levels(teacher, 1000)
    # steps 3 and gift 0 are the middle; standard error of the share .016
    assert abs((np.abs(drawn - [3, 0]).max(1) < 1e-3).mean() - 0.5) < 0.06


def test_no_unit_of_the_returns_matters():
    def means(scale):
        values, teacher = iter(np.random.default_rng(0).random(80)), ALPGMM(fit_rate=40, components=3)
        learn(teacher, 2, lambda number, steps, gift: scale * next(values) + scale, 40)
        return teacher.mixture.means

    assert means(1.0) == pytest.approx(means(1024.0), abs=1e-9)


def test_a_resumed_teacher_goes_on_alike():
    def returns(number, steps, gift):
        return steps * gift + number

    one, other = (ALPGMM(fit_rate=30, components=3) for _ in range(2))
    other.load_state_dict(one.state_dict())  # before the first episode
    learn(one, 3, returns, 20)
    other.load_state_dict(one.state_dict())
    assert levels(one, 20, on_levels(3)).tolist() == levels(other, 20, on_levels(3)).tolist()
    for teacher in (one, other):
        teacher.observe([[ended(2.0, 0.5, **{"return": 1.0})]] * 30)
    assert (one.mixture.means == other.mixture.means).all() and (one.progress == other.progress).all()


def test_bad_settings_are_refused():
    for wrong, message in (
        ({"random_ratio": 1.5}, "random_ratio"),
        ({"components": 1}, "components must be at least 2"),
        ({"fit_rate": 10}, "fit_rate must be at least 11"),
    ):
        with pytest.raises(ValueError, match=message):
            ALPGMM(**wrong)
