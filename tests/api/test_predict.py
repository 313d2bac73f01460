"""A policy of an own environment acts on observations of gymnasium.make, as in Stable-Baselines3."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import mmrl
from tests.api.test_training import QUIET


class Tickets(gymnasium.Env):
    """Observations by name, actions from 1 on, of which a method says which are legal."""

    observation_space = spaces.Dict({"left": spaces.MultiBinary(3), "day": spaces.Discrete(4)})
    action_space = spaces.Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.day, self.left = 0, np.array([1, 0, 1], np.int8)
        return self._observation(), {}

    def step(self, action):
        assert self.left[action - 1], "not on sale"
        self.day, self.left = (self.day + 1) % 4, np.roll(self.left, 1)
        return self._observation(), 1.0, False, False, {}

    def action_masks(self):
        return self.left == 1

    def _observation(self):
        return {"left": self.left.copy(), "day": self.day}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    keys = {"rollout": {"num_envs": 2, "horizon": 8}, "trainer": {"max_epochs": 1}, "data": {"num_minibatches": 1}}
    gymnasium.register("Tickets-v0", entry_point=Tickets, max_episode_steps=20)
    return mmrl.fit(
        "recipe=ppo_control", "sim.id=Tickets-v0", "data.evaluation.count=1", *QUIET,
        run_dir=tmp_path_factory.mktemp("tickets"), **keys,
    )  # fmt: skip


def test_it_acts_as_in_its_own_simulator(run):
    policy = run.load_policy()
    outer, inner = gymnasium.make("Tickets-v0"), policy.make_env()
    observation, _ = outer.reset(seed=1)
    expected, _ = inner.reset(seed=1)
    for _ in range(8):
        action, state = policy.predict(observation, action_masks=outer.unwrapped.action_masks())
        number = policy.act(expected)
        assert state is None and outer.action_space.contains(action) and action == number + 1
        observation, *_ = outer.step(action)
        expected, *_ = inner.step(number)


def test_what_it_cannot_read_is_said(run):
    policy = run.load_policy()
    observation, _ = gymnasium.make("Tickets-v0").reset(seed=1)
    with pytest.raises(ValueError, match="mask of legal actions; give action_masks="):
        policy.predict(observation)
    with pytest.raises(ValueError, match=r"predict\(observation\)"):
        policy.act(observation)


def test_other_policies_have_no_predict(run):
    policy = run.load_policy()
    policy.__dict__["task"] = object()
    with pytest.raises(mmrl.ConfigError, match=r"predict\(\.\.\.\) is for environments of gymnasium"):
        policy.predict({})
