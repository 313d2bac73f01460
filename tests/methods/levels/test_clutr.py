"""CLUTR: the loss of the level VAE by hand, what the VAE restores, and a teacher in its latent space."""

import math

import numpy as np
import pytest
import torch

from mmrl.methods.levels.clutr import CLUTR, LevelVAE, draw_levels, fit_level_vae, kl_weight, vae_loss
from tests.curricula.test_regret import TASK, context, played, student_of

SMALL = {"latent": 4, "embedding": 8, "hidden": 16, "steps": 3, "batch_size": 8}
LAWS = [lambda: CLUTR(**SMALL, ordered=1)]  # the laws' levels have one parameter


def test_the_weight_of_the_divergence_by_hand():
    assert kl_weight(3500) == 0.5
    assert kl_weight(4500) == pytest.approx((math.tanh(1) + 1) / 2)  # .880797
    assert kl_weight(0) < 0.001 and kl_weight(10_000) > 0.999


def test_the_loss_by_hand():
    """Uniform logits of four cells cost log 4; N(1, 1) against N(0, 1) diverges by 1 / 2 in each dimension."""
    logits, tokens = torch.zeros(2, 3, 4), torch.randint(4, (2, 3))
    loss = vae_loss(logits, tokens, torch.ones(2, 5), torch.zeros(2, 5), 79.0, 0.5)
    assert loss.item() == pytest.approx(79 * math.log(4) + 0.5 * 2.5)


def test_the_divergence_is_that_of_torch():
    mean, logvar = torch.randn(6, 3), torch.randn(6, 3)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, (0.5 * logvar).exp()), normal(0.0, 1.0))
    tokens = torch.zeros(6, 2, dtype=torch.long)
    loss = vae_loss(torch.zeros(6, 2, 4), tokens, mean, logvar, 1.0, 1.0)
    assert loss.item() == pytest.approx(math.log(4) + expected.sum(dim=1).mean().item(), rel=1e-5)


def test_levels_are_sorted_but_for_their_last_cells():
    tokens = draw_levels(500, 6, 2, 9, np.random.default_rng(0))
    assert (np.diff(tokens[:, :4], axis=1) >= 0).all() and (np.diff(tokens[:, 3:], axis=1) < 0).any(axis=0).all()
    counts = np.bincount(tokens.reshape(-1), minlength=9)
    assert counts.min() > 270  # 333 of each cell, with a standard deviation of 17


def test_the_vae_learns_to_restore_levels():
    """Four cells of five values: a guess is right in about a third of them, as they are sorted."""
    torch.manual_seed(0)
    vae, schedule = LevelVAE(5, 4, 6, 8, 32), {"middle": 3500, "width": 1000}
    before = fit_level_vae(vae, 1, 0, 64, 1e-2, 79.0, schedule, seed=0)
    after = fit_level_vae(vae, 1, 250, 64, 1e-2, 79.0, schedule, seed=0)
    assert before < 0.5 and after > 0.9
    mean, _ = vae.encode(torch.from_numpy(draw_levels(200, 4, 1, 5, np.random.default_rng(1))))
    assert mean.abs().max() <= 4


def test_levels_are_cells_and_both_students_play_them():
    curriculum = CLUTR(**SMALL)
    indices = curriculum.select(20, context())
    assert [student_of(index) for index in indices] == [0, 1] * 10
    for index in indices:
        cells = np.array(list(TASK[index].info["level"].values()))
        assert np.abs(cells - cells.round()).max() < 0.41  # steps of 25 / 31
    assert indices == CLUTR(**SMALL).select(20, context(rank=1))
    # 4 in every dimension is the corner of the latent space that an action of 1 stands for
    latent = torch.full((1, 4), 4.0)
    expected = curriculum.vae.decode(latent)[0].argmax(dim=-1).numpy()
    np.testing.assert_allclose(25 * curriculum.decode(np.ones(4)) - 0.5, expected)


def test_a_resumed_run_has_the_same_vae_and_teacher():
    one, other = CLUTR(**SMALL), CLUTR(**SMALL)
    indices = one.select(16, context())
    one.observe([played(i, [i % 97 / 97], group=k) for k, i in enumerate(indices)])
    assert one.teacher.steps == 5
    other.load_state_dict(one.state_dict())
    assert one.select(16, context(1)) == other.select(16, context(1)) and other.restored == one.restored > 0


def test_bad_settings_are_refused():
    for wrong in ({"cells": 1}, {"latent": 0}, {"vae_lr": 0.0}, {"steps": -1}, {"regret": "none"}):
        with pytest.raises(ValueError, match=next(iter(wrong)).replace("vae_", "")):
            CLUTR(**{**SMALL, **wrong})
    with pytest.raises(ValueError, match="ordered=12, but levels have 9"):
        CLUTR(**SMALL, ordered=12).select(4, context())
