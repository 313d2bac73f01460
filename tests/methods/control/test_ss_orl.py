"""SS-ORL: likelihood and windows by hand, who is labelled, the labels of known dynamics, and what stays as it is."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.errors import ConfigError
from mmrl.data.offline.played_log import EpisodeDataset, PlayedLog
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.methods.control.ss_orl import (
    InverseDynamics,
    InverseDynamicsLabels,
    choose_labelled,
    fit_dynamics,
    stack_windows,
)
from sims.point.discs import TwoDiscs
from sims.task import SimTask

CPU = torch.device("cpu")


def relabel(dataset, **options):
    return InverseDynamicsLabels(**options).relabel(dataset, 0, Path("unused"), CPU)


def test_windows_by_hand():
    """States 1, 2, 3 and then 4 with one past transition: (1, 1, 2), (1, 2, 3), (2, 3, 4); without: pairs."""
    states = np.array([[1.0], [2.0], [3.0]])
    assert stack_windows(states, np.array([4.0]), 1).tolist() == [[1, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert stack_windows(states, np.array([4.0]), 0).tolist() == [[1, 2], [2, 3], [3, 4]]
    wide = stack_windows(np.array([[1.0, -1.0], [2.0, -2.0]]), np.array([3.0, -3.0]), 0)
    assert wide.tolist() == [[1, -1, 2, -2], [2, -2, 3, -3]]


def test_the_likelihood_by_hand():
    """Deviation 1: a residual of .5 costs .5^2 / 2 + log(2 pi) / 2 = 1.043939, none .918939; their mean is .981439.

    The bounds are -1 and 3, and a layer of zeros gives tanh 0, the middle, 1.
    """
    actions = torch.tensor([[-1.0], [3.0]])
    model = InverseDynamics(torch.tensor([[0.0], [2.0]]), actions, [4], 0.0)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    mean, log_std = model(torch.tensor([[7.0]]))
    assert mean.item() == 1 and log_std.item() == 0
    windows = torch.zeros(2, 1)
    assert_close(model.loss(windows, torch.tensor([[1.5], [1.0]])), torch.tensor(0.981439))
    assert_close(model.loss(windows[:1], torch.tensor([[0.5]])), torch.tensor(1.043939))
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([50.0, 0.0]))
    assert model(windows)[0].tolist() == [[3.0], [3.0]]  # at the bound, not beyond


def test_the_labelled_are_drawn_among_the_lowest_returns():
    """A fifth of ten, 2, among the lower half, whose numbers are 1, 3, 5, 7 and 9; every pair of them is drawn."""
    returns = [10.0, -1, 12, -2, 9, 0, 11, -3, 8, -4]
    choices = {tuple(choose_labelled(returns, 0.2, 0.5, np.random.default_rng(seed))) for seed in range(200)}
    assert choices == {(a, b) for a in (1, 3, 5, 7, 9) for b in (1, 3, 5, 7, 9) if a < b}
    assert choose_labelled(returns, 1.0, 1.0, np.random.default_rng(0)) == list(range(10))
    assert len(choose_labelled(returns, 0.9, 0.5, np.random.default_rng(0))) == 5


def test_labels_are_the_actions_of_known_dynamics():
    """A point moves by .2 a and never touches a wall: the labels of all other trajectories are what was played."""
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(40):
        actions = rng.uniform(-1, 1, (10, 2)).astype(np.float32)
        states = np.concatenate([np.zeros((1, 2)), np.cumsum(0.2 * actions, axis=0)]).astype(np.float32)
        episodes.append(
            OfflineEpisode(actions, {"state": states[:-1]}, rewards=rng.normal(size=10), final={"state": states[-1]})
        )
    labelled, metrics = relabel(
        EpisodeDataset(episodes, "walks"),
        labelled=0.3,
        below=1.0,
        steps=300,
        hidden=[32],
        batch_size=64,
        lr=5e-3,
        dropout=0.0,
    )
    changed = [i for i in range(40) if labelled.read(i).actions is not episodes[i].actions]
    assert metrics["relabelling/labelled"] == 12 and len(changed) == 28 and len(labelled) == 40
    errors = [np.square(labelled.read(i).actions - episodes[i].actions).mean() for i in changed]
    assert np.mean(errors) == pytest.approx(metrics["relabelling/action_error"], rel=1e-5)
    assert np.mean(errors) < 0.02  # a third, the variance of the actions, without a model
    assert labelled.lengths() == [10] * 40
    for i in range(40):
        np.testing.assert_array_equal(labelled.read(i).rewards, episodes[i].rewards)


def test_recorded_actions_of_unlabelled_trajectories_change_no_label():
    log = PlayedLog(12).play(SimTask(TwoDiscs()), 0)
    options = dict(labelled=0.25, below=1.0, steps=5, hidden=[8])
    first, _ = relabel(log, **options)
    labelled = [i for i in range(12) if i not in first.actions]
    for i in first.actions:
        log.episodes[i].actions, log.episodes[i].executed = -log.episodes[i].actions, None
    second, _ = relabel(log, **options)
    assert len(labelled) == 3 and second.actions.keys() == first.actions.keys()
    for i in first.actions:
        np.testing.assert_array_equal(first.read(i).actions, second.read(i).actions)


def test_the_best_model_on_held_out_rows_is_kept():
    """Held-out actions contradict those of training, so that every further step is worse than the first check."""
    windows = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    train, held_out = (windows, windows.tanh()), (windows, -windows.tanh())
    _, short = fit_dynamics(train, held_out, steps=10, lr=0.01, seed=0, checks=10, hidden=[8], dropout=0.0)
    model, least = fit_dynamics(train, held_out, steps=60, lr=0.01, seed=0, checks=60, hidden=[8], dropout=0.0)
    with torch.no_grad():
        assert float(model.loss(*held_out)) == pytest.approx(least) and least <= short + 1e-6
    again, _ = fit_dynamics(train, train, steps=60, lr=0.01, seed=0, hidden=[8], dropout=0.0)
    with torch.no_grad():
        assert float(again.loss(*train)) < float(model.loss(*train))


def test_all_labelled_is_the_recording_itself_and_none_is_refused():
    log = PlayedLog(4).play(SimTask(TwoDiscs()), 0)
    same, metrics = relabel(log, labelled=1.0, below=1.0)
    assert same is log and metrics == {"relabelling/labelled": 4.0}
    alone, _ = relabel(log, labelled=0.5, below=1.0, unlabelled=False)
    assert len(alone) == 2 and all(any(alone.read(i) is each for each in log.episodes) for i in range(2))
    with pytest.raises(ConfigError, match=r"labelled=0\.1: 1 of 4 trajectories"):
        relabel(log, labelled=0.1)
    with pytest.raises(ConfigError, match=r"observation='joints'.*image, state"):
        relabel(log, labelled=0.5, below=1.0, observation="joints")
    with pytest.raises(ValueError, match=r"labelled must be in \(0, 1\]"):
        InverseDynamicsLabels(labelled=0.0)
