"""Cloning from recorded episodes with a history of observations."""

import numpy as np
import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.datasets.task import OfflineTask
from mmrl.policies.vla.chains import DDIM
from mmrl.policies.vla.diffusion_policy.policy import DiffusionPolicy
from mmrl.rollouts.offline.history import HistoryRollout
from tests.datasets.episodes import episode, write


def test_a_decision_shows_the_observations_before_it(tmp_path):
    was = episode(7, 0)
    folder = str(write(tmp_path / "set", [was]))
    size = was.observations["image"].shape[1:3]
    settings = {"n_obs_steps": 2, "down_dims": [16], "n_groups": 4, "spatial_softmax_num_keypoints": 4}
    policy = DiffusionPolicy(DDIM(), settings=settings, chunk=3, proprio_dims=5, image_size=size)
    task = OfflineTask(folder)
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=0)
    turns = HistoryRollout(2, path=folder, stride=1).collect([(0, task[0])], ctx)[0].turns
    assert len(turns) == 7
    for step, turn in enumerate(turns):
        seen, before = turn.completion.observation, max(step - 1, 0)
        assert seen["images"].shape == (2, 1, *size, 3)
        expected = np.stack([was.observations["proprio"][i] for i in (before, step)])
        assert torch.equal(seen["proprio"], torch.from_numpy(expected))
        assert np.array_equal(turn.completion.output[0], was.actions[step])
    with pytest.raises(ValueError, match=r"rollout\.history"):
        HistoryRollout(0, path=folder)
