"""States that are trained on are never states that are measured on: by construction, and as the simulator saw them."""

import gymnasium
import numpy as np
import pytest
import torch

from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.rollouts.offline.pointing import PointingDemonstrations
from sims.gym import GymSim
from sims.gym.guard import Guard
from sims.tabletop import Reach
from sims.task import SimTask
from tests.evaluation.faulty import SEEN, RememberingReach
from tests.evaluation.test_errors import SMALL
from tests.rollouts.env.test_episodic import Guess, context
from tests.tiny_recipes import fit


@pytest.fixture(autouse=True)
def _forget():
    for seeds in SEEN.values():
        seeds.clear()


class Imitator(Guess):
    """Takes any demonstration as its first bins."""

    def encode_demonstration(self, raw, output):
        return torch.zeros(int(np.prod(self.shape)), dtype=torch.long)


def held_out(task: SimTask) -> set[int]:
    other = task.on("held_out")
    return {other[i].info["seed"] for i in range(len(other))}


@pytest.mark.parametrize("seed", [0, 1, 77])
def test_the_streams_of_the_splits_have_no_seed_in_common(seed):
    """The lowest bit is the split, whatever the rest of the number is."""
    for sim in (Reach(threads=1), GymSim("CartPole-v1")):
        task = SimTask(sim, seed=seed)
        train = {task[i].info["seed"] for i in range(len(task))}
        assert {s % 2 for s in train} == {0} and {s % 2 for s in held_out(task)} == {1}
        assert len(train) == len(held_out(task)) == 4096  # and no state is met twice


def test_a_run_with_whole_episodes_measures_other_states_than_it_trains_on(tmp_path):
    target = "data.task.sim._target_=tests.evaluation.faulty.RememberingReach"
    fit(tmp_path, "recipe=demo_vla", *SMALL, target, "data.evaluation.offset=0")
    task = SimTask(RememberingReach())
    states = set(SEEN["reset"])
    measured = {task.on("held_out")[i].info["seed"] for i in range(9)}
    trained = states - measured
    assert measured < states and len(trained) == 6  # nine held-out states and six prompts, and nothing else
    assert not trained & held_out(task)
    assert trained <= {task[i].info["seed"] for i in range(len(task))}


def test_episodes_of_segments_begin_in_training_states():
    task = SimTask(RememberingReach(image_size=16, threads=1), count=256)
    policy, rollout = Guess(values=True), FixedHorizon(num_envs=4, horizon=16)
    for _ in range(2):
        rollout.collect([(i, task[i]) for i in range(4)], context(task, policy))
    begun = {seed for seed in SEEN["reset"] if seed}  # environments that go on are given zero
    assert len(begun) > 12
    assert begun <= {task[i].info["seed"] for i in range(len(task))} and not begun & held_out(task)


def test_demonstrations_and_scenes_are_of_training_states():
    task = SimTask(RememberingReach(image_size=16, threads=1), count=64)
    ctx = context(task, Imitator())
    prompts = [(i, task[i]) for i in range(8)]
    assert len(Demonstrations().collect(prompts, ctx)) == 8
    assert PointingDemonstrations(least_pixels=1).collect(prompts, ctx)
    wanted = {prompt.info["seed"] for _, prompt in prompts}
    assert set(SEEN["demonstrate"]) == set(SEEN["label_images"]) == wanted
    assert set(SEEN["reset"]) <= wanted and not wanted & held_out(task)


class Started(gymnasium.Env):
    """Remembers the seeds that it was started with; every step fails."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)
    seeds: list = []

    def reset(self, *, seed=None, options=None):
        Started.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        raise RuntimeError("snap")


@pytest.mark.parametrize("seed", [4, 7])
def test_an_env_that_is_made_anew_stays_in_its_split(seed):
    """After a failure the seed of the next episode is derived, and keeps the bit that says which split it is of."""
    Started.seeds.clear()
    guard = Guard(Started)
    guard.reset(seed=seed)
    for _ in range(3):
        guard.step(0)
        guard.reset()
    assert len(set(Started.seeds)) == 4 and {one % 2 for one in Started.seeds} == {seed % 2}
