"""Recordings cut into action chunks."""

import numpy as np
import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.data.offline.chunks import chunk_episode
from mmrl.datasets.offline_episodes import OfflineEpisode


def episode(steps: int, **more) -> OfflineEpisode:
    """Control step t has state t, actions (t, 10 t) and reward 2^t."""
    t = np.arange(steps, dtype=np.float32)
    return OfflineEpisode(
        actions=np.stack([t, 10 * t], 1), observations={"state": t[:, None]}, rewards=2**t, where="e", **more
    )


def test_decisions_begin_at_every_control_step():
    """Five steps in chunks of two: from step 0 the decisions 0, 2, 4 and from step 1 the decisions 1, 3."""
    first, second = chunk_episode(episode(5, terminated=True), 2)
    assert first.observations["state"][:, 0].tolist() == [0, 2, 4] and first.terminated and second.terminated
    assert first.actions.tolist() == [[0, 0, 1, 10], [2, 20, 3, 30], [4, 40, 4, 40]]  # the last one is repeated
    assert first.rewards.tolist() == [1 + 2, 4 + 8, 16]
    assert second.observations["state"][:, 0].tolist() == [1, 3]
    assert second.rewards.tolist() == [2 + 4, 8 + 16]


def test_actions_are_those_that_were_executed():
    played = np.full((3, 2), 0.5, np.float32)
    (only,) = chunk_episode(episode(3, executed=played), 1)
    assert only.actions.tolist() == played.tolist()


def test_an_episode_that_is_shorter_than_a_chunk_begins_at_its_own_steps_alone():
    assert [len(part) for part in chunk_episode(episode(2), 5)] == [1, 1]


def test_what_has_no_rewards_is_refused():
    with pytest.raises(ValueError, match="no rewards"):
        chunk_episode(OfflineEpisode(np.zeros((2, 1), np.float32), {"state": np.zeros((2, 1))}), 2)


def test_only_recordings_are_cut():

    words = ("method=rl100_critics", "setting=push_states", "policy=tanh_mean", "policy.actions=15", "policy.low=-1.0")
    words += ("policy.high=1.0",)
    with pytest.raises((ValueError, ConfigError), match=r"data\.chunk=5"):
        CLI(to_lightning(compose([*words, "data.path=null", "data.evaluation=null"])))
