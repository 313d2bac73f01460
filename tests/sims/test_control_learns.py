"""PPO learns with one-hot states, masks, several numbers and running statistics."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.tiny_recipes import fit

NAME = "odd/Matching-v0"


class Matching(gymnasium.Env):
    """Pays the share of two numbers that are the state's, which is given among large constants; 8 steps."""

    metadata = {"render_modes": []}
    observation_space = spaces.Dict({"shown": spaces.MultiDiscrete([3, 4]), "scale": spaces.Box(0, 1e6, (2,))})
    action_space = spaces.MultiDiscrete([3, 4])

    def _observe(self):
        self.shown = self.np_random.integers([3, 4])
        noise = self.np_random.normal(5e5, 10, 2).astype(np.float32)
        return {"shown": self.shown, "scale": noise}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        reward, self.time = 50.0 * float((action == self.shown).mean()), self.time + 1
        return self._observe(), reward, self.time == 8, False, {}


gymnasium.register(NAME, entry_point=Matching)


def returns(folder, *words):
    record = fit(
        folder, "recipe=ppo_control", "trainer.callbacks.checkpoint=null", "trainer.callbacks.export=null", *words
    )
    key = "val/greedy/returns/return"
    return [row[key] for row in record["metrics"] if key in row]


def test_several_numbers_are_learned_from_normalised_states_and_rewards(tmp_path):
    # at random 8 * 50 * (1/3 + 1/4) / 2 = 117; all right 400
    last = returns(
        tmp_path,
        f"sim.id={NAME}",
        "policy.normalize_observations=true",
        "rollout.normalize_rewards=true",
        "trainer.max_epochs=12",
        "trainer.check_val_every_n_epoch=12",
        "optimizer.lr=2e-3",
    )[-1]
    assert last > 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_taxi_is_learned_with_its_mask(seed, tmp_path):
    # a taxi that never delivers pays -200; -121 to -161 after 20 to 40 iterations, -70 after 60
    name = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
    last = returns(
        tmp_path,
        f"sim.id={name}",
        f"seed={seed}",
        "rollout.horizon=128",
        "rollout.normalize_rewards=true",
        "trainer.max_epochs=60",
        "trainer.check_val_every_n_epoch=60",
    )[-1]
    assert last > -110


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_cart_pole_is_learned_with_running_statistics(seed, tmp_path):
    last = returns(
        tmp_path,
        "sim.id=CartPole-v1",
        f"seed={seed}",
        "policy.normalize_observations=true",
        "rollout.normalize_rewards=true",
        "trainer.max_epochs=40",
        "trainer.check_val_every_n_epoch=40",
    )[-1]
    assert last == 500
