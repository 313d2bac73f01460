"""Behavior Retrieval: scores by hand and by brute force, which rows are kept, and what is imitated."""

import numpy as np
import pytest
import torch

from mmrl.core.errors import ConfigError
from mmrl.core.types import Sampling
from mmrl.curricula.sampler import Shuffled
from mmrl.data.offline.played_log import EpisodeDataset, PlayedLog
from mmrl.data.replay_buffer import ReplayBuffer
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.engines.local import LocalEngine
from mmrl.methods.control.behavior_retrieval import (
    PairAutoencoder,
    RetrievedReplayData,
    cut_episode,
    fit_autoencoder,
    normalise_scores,
    score_rows,
)
from mmrl.objectives.weighting import TokenMean
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from sims.point.discs import TwoDiscs
from sims.task import SimTask
from tests.data.offline.recordings import arrays, write


def test_scores_are_brought_to_a_unit_interval():
    """(S + 4) / 3.9: -0.1 is 1, -0.5 is 3.5 / 3.9, -2 is 2 / 3.9, -4 is 0; a threshold of 0.7 keeps two."""
    scores = normalise_scores(torch.tensor([-0.1, -0.5, -2.0, -4.0]))
    assert scores.tolist() == pytest.approx([1, 0.897436, 0.512821, 0], abs=1e-6)
    assert int((scores >= 0.7).sum()) == 2
    assert normalise_scores(torch.tensor([-2.0, -2.0])).tolist() == [1, 1]  # all are kept


def test_a_row_is_as_like_as_its_nearest_demonstration():
    rng = np.random.default_rng(0)
    recorded, shown = rng.normal(size=(30, 3)), rng.normal(size=(4, 3))
    nearest = [-min(float(np.linalg.norm(one - other)) for other in shown) for one in recorded]
    low, high = min(nearest), max(nearest)
    expected = [(each - low) / (high - low) for each in nearest]
    scores = score_rows(torch.tensor(recorded), torch.tensor(shown))
    assert scores.tolist() == pytest.approx(expected, abs=1e-9)


def test_the_loss_is_the_error_and_the_divergence_of_a_normal():
    """With a decoder that gives zeros the error is the squared length of the scaled row; the divergence by hand."""
    torch.manual_seed(0)
    rows = torch.randn(16, 3)
    model = PairAutoencoder(rows, dims=2, hidden=4, kl=0.5)
    for parameter in model.decoder.parameters():
        torch.nn.init.zeros_(parameter)
    scaled = (rows - rows.mean(0)) / rows.std(0)
    mean, log_variance = model.encoder(scaled).chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum(1)
    expected = (scaled.square().sum(1) + 0.5 * divergence).mean()
    torch.testing.assert_close(model.loss(rows, torch.randn(16, 2)), expected)
    torch.testing.assert_close(model.embed(rows), mean)


def test_rows_like_the_demonstrations_are_retrieved():
    """Rows near (3, 3, 3, 3) are like the demonstrations, those near (-3, ...) are not."""
    rng = np.random.default_rng(0)
    near, far = rng.normal(3, 0.3, (100, 4)), rng.normal(-3, 0.3, (100, 4))
    recorded = torch.tensor(np.concatenate([near, far]), dtype=torch.float32)
    shown = torch.tensor(rng.normal(3, 0.3, (10, 4)), dtype=torch.float32)
    model = fit_autoencoder(recorded, steps=100, lr=1e-2, seed=0)
    kept = score_rows(model.embed(recorded), model.embed(shown)) >= 0.7
    assert kept[:100].float().mean() > 0.9 and not kept[100:].any()
    again = fit_autoencoder(recorded, steps=100, lr=1e-2, seed=0)
    assert torch.equal(model.embed(recorded), again.embed(recorded))


def test_an_episode_is_cut_into_its_kept_rows():
    states = np.arange(6, dtype=np.float32)[:, None]
    episode = OfflineEpisode(actions=states * 2, observations={"state": states}, where="here")
    parts = cut_episode(episode, np.array([True, True, False, False, True, True]))
    assert [part.observations["state"][:, 0].tolist() for part in parts] == [[0, 1], [4, 5]]
    assert [part.actions[:, 0].tolist() for part in parts] == [[0, 2], [8, 10]]
    assert [part.final["state"].tolist() for part in parts] == [[2], [5]]  # after the last row none was recorded
    assert parts[1].where == "here, rows 4 to 5" and cut_episode(episode, np.zeros(6, bool)) == []


def make(**options):
    parts = dict(task=SimTask(TwoDiscs()), rollout=FixedHorizon(num_envs=1, horizon=4), reward=WeightedSum({}))
    parts |= dict(engine=LocalEngine(), weighting=TokenMean(), curriculum=Shuffled(), sampling=Sampling())
    parts |= dict(replay=ReplayBuffer(capacity=1000, batch_size=4), num_prompts=1, group_size=1)
    return RetrievedReplayData(**{**parts, "steps": 20, **options})


def test_demonstrations_and_retrieved_rows_are_as_many():
    data = make(log=PlayedLog(num_episodes=40), held_back=20, num_demonstrations=2)
    dataset = data._open_recording()
    metrics = data._recording_metrics
    assert metrics["retrieval/demonstrated_rows"] % 40 == 0  # two episodes of 20 rows
    assert abs(metrics["retrieval/demonstrated_rows"] - metrics["retrieval/rows"]) <= 20
    total = sum(len(dataset[number]) for number in range(len(dataset)))
    assert total == metrics["retrieval/demonstrated_rows"] + metrics["retrieval/rows"]
    assert metrics["retrieval/share"] == pytest.approx(metrics["retrieval/rows"] / 400)
    ends = make(log=PlayedLog(num_episodes=40)).log.play(SimTask(TwoDiscs()), 0).episodes[20:]
    shown = [episode for episode in ends if episode.success][:2]
    for number, episode in enumerate(shown):
        np.testing.assert_array_equal(dataset[number].actions, episode.actions)


@pytest.mark.parametrize(("delta", "rows"), [(None, 0), (0.0, 400)])
def test_a_threshold_of_none_retrieves_nothing_and_of_0_everything(delta, rows):
    data = make(log=PlayedLog(num_episodes=40), held_back=20, delta=delta)
    data._open_recording()
    assert data._recording_metrics["retrieval/rows"] == rows


def test_recordings_of_the_user(tmp_path):
    prior = write(tmp_path / "prior.hdf5", **arrays([5, 6], ["time", "time"], seed=1))
    shown = write(tmp_path / "shown.hdf5", **arrays([4, 4, 4], ["time"] * 3, seed=2))
    data = make(path=str(prior), demonstrations=str(shown), num_demonstrations=2, delta=0.0)
    dataset = data._open_recording()
    assert isinstance(dataset, EpisodeDataset)
    assert data._recording_metrics["retrieval/rows"] == 11
    assert data._recording_metrics["retrieval/demonstrated_rows"] == 8


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, "name the recording and the demonstrations"),
        ({"path": "x.hdf5"}, "name the recording and the demonstrations"),
        ({"log": PlayedLog(4), "held_back": 4}, "data.held_back must be in"),
        ({"log": PlayedLog(4), "held_back": 1, "num_demonstrations": 0}, "data.num_demonstrations must be at least 1"),
        ({"log": PlayedLog(4), "held_back": 1, "delta": 1.5}, "data.delta must be in"),
        ({"log": PlayedLog(4), "held_back": 3, "observation": "image"}, "data.observation='image'.*image, state"),
    ],
)
def test_what_cannot_be_retrieved_from_is_refused(options, refused):
    with pytest.raises((ConfigError, ValueError), match=refused):
        make(**options)._open_recording()


def test_a_recording_without_a_success_is_refused(monkeypatch):
    monkeypatch.setattr(PlayedLog, "play", _failures)
    with pytest.raises(ConfigError, match="none of these episodes succeeds"):
        make(log=PlayedLog(4), held_back=2)._open_recording()


def _failures(self, task, seed):
    rows = np.zeros((2, 2), np.float32)
    return EpisodeDataset([OfflineEpisode(rows, {"state": rows}, success=False) for _ in range(4)], "log")
