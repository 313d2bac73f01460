"""Chunks that are played in part, and histories of observations."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sims.chunked.sim import ChunkedSim
from sims.chunked.vector import ChunkVectorEnv
from sims.tabletop.sims import Reach


class Counter(VectorEnv):
    """Each state is the sum of actions; environment i ends after i + 2 control steps."""

    def __init__(self, num_envs: int = 2):
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = spaces.Dict(
            {"state": spaces.Box(-9, 9, (1,), np.float32), "instruction": spaces.Text(5)}
        )
        self.single_action_space = spaces.Box(-1, 1, (1, 1), np.float32)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.state, self.steps = np.zeros((self.num_envs, 1), np.float32), np.zeros(self.num_envs, int)
        return self._seen(), {}

    def step(self, actions):
        live = self.steps < np.arange(self.num_envs) + 2
        self.state[live] += actions[live, 0]
        self.steps += live
        over = self.steps == np.arange(self.num_envs) + 2
        scores = {"count": np.where(live, self.steps, 0).astype(float)}
        return self._seen(), np.ones(self.num_envs), over, np.zeros_like(over), {"scores": scores}

    def _seen(self):
        return {"state": self.state.copy(), "instruction": ["go"] * self.num_envs}


def test_a_part_of_each_chunk_is_played_and_observations_have_a_history():
    env = ChunkVectorEnv(Counter(), chunk=4, execute=2, history=3)
    moved = []
    env.step_callback = moved.append
    assert env.single_action_space.shape == (4, 1) and env.single_observation_space["state"].shape == (3, 1)
    seen, _ = env.reset(seed=[1, 2])
    assert (seen["state"] == 0).all() and seen["instruction"] == ["go", "go"]
    actions = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
    seen, rewards, terminated, truncated, infos = env.step(actions)
    assert seen["state"][..., 0].tolist() == [[0, 1, 3], [0, 5, 11]]
    assert rewards.tolist() == [2, 2] and infos["executed"].tolist() == [2, 2]
    assert terminated.tolist() == [True, False] and not truncated.any()
    seen, rewards, terminated, _, infos = env.step(actions)
    # the first environment keeps still, with its scores and its history
    assert seen["state"][..., 0].tolist() == [[0, 1, 3], [5, 11, 16]]
    assert rewards.tolist() == [0, 1] and infos["executed"].tolist() == [0, 1]
    assert terminated.tolist() == [True, True] and [m.tolist() for m in moved] == [[0, 1], [0, 1], [1]]


def test_infos_of_ended_environments_stay():
    env = ChunkVectorEnv(Counter(), chunk=3)
    env.reset(seed=[1, 2])
    *_, infos = env.step(np.zeros((2, 3, 1), np.float32))
    assert infos["scores"]["count"].tolist() == [2, 3] and infos["executed"].tolist() == [2, 3]


def test_demonstrations_have_whole_chunks_and_histories():
    sim = ChunkedSim(Reach(level="easy", observe=()), chunk=6, execute=4, history=2)
    single = sim.stepwise().demonstrate([6])[0]
    chunked = sim.demonstrate([6])[0]
    actions = np.concatenate([action for _, action in single])
    assert len(chunked) == -(-len(single) // 4)
    for number, (raw, action) in enumerate(chunked):
        start = 4 * number
        own = single[start][0]["proprio"], single[max(start - 1, 0)][0]["proprio"]
        assert np.array_equal(raw["proprio"][1], own[0]) and np.array_equal(raw["proprio"][0], own[1])
        assert np.array_equal(action, actions[np.minimum(np.arange(start, start + 6), len(actions) - 1)])
    assert sim.sizes()["chunk"] == 6 and sim.contract()["execute"] == 4 and raw["instruction"]


def test_impossible_chunks_are_refused():
    for words, message in (({"execute": 9}, "execute=9"), ({"history": 0}, "history")):
        with pytest.raises(ValueError, match=message):
            ChunkedSim(Reach(), chunk=8, **words)
