"""gymnasium environments as simulators."""

import copy

import gymnasium
import numpy as np
import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.files.pickled import PICKLED
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rollouts.env.episodic import EpisodicRollout
from sims.gym import GymSim
from sims.gym.guard import Guard
from sims.task import SimTask


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"sim\.id='CartPole-v9' is not a registered environment"):
        GymSim("CartPole-v9")
    with pytest.raises(ValueError, match=r"sim\.id='nonsense:Env-v0'"):
        GymSim("nonsense:Env-v0")
    with pytest.raises(ValueError, match=r"sim\.autoreset must be one of"):
        GymSim("CartPole-v1", autoreset="always")


def test_envs_step_as_single_environments_do():
    venv, single = GymSim("CartPole-v1").make(2), gymnasium.make("CartPole-v1")
    seen, _ = venv.reset(seed=[3, 4])
    assert np.array_equal(seen[1], single.reset(seed=4)[0])
    for action in (0, 1, 1, 0):
        seen, rewards, _, _, _ = venv.step(np.array([1, action]))
        expected = single.step(action)
        assert np.array_equal(seen[1], expected[0]) and rewards[1] == expected[1]


def test_time_limit_and_further_arguments():
    venv = GymSim("CartPole-v1", max_episode_steps=2, kwargs={"sutton_barto_reward": True}).make(1)
    venv.reset(seed=0)
    _, reward, terminated, truncated, _ = venv.step(np.array([0]))
    assert reward[0] == 0.0 and not truncated[0]
    _, _, terminated, truncated, _ = venv.step(np.array([1]))
    assert truncated[0] and not terminated[0]


def test_an_ended_env_keeps_still_until_it_is_reset():
    venv = GymSim("CartPole-v1", max_episode_steps=2).make(2)
    venv.reset(seed=[0, 1])
    venv.step(np.array([0, 0]))
    ended, _, _, truncated, _ = venv.step(np.array([0, 0]))
    assert truncated.all()
    seen, rewards, _, truncated, _ = venv.step(np.array([1, 1]))
    assert np.array_equal(seen, ended) and truncated.all() and rewards.tolist() == [0, 0]
    seen, _ = venv.reset(options={"reset_mask": np.array([False, True])})
    assert np.array_equal(seen[0], ended[0]) and not np.array_equal(seen[1], ended[1])
    _, rewards, _, truncated, _ = venv.step(np.array([1, 1]))
    assert truncated.tolist() == [True, False] and rewards.tolist() == [0, 1]


def test_whole_episodes_are_played_for_evaluation():
    task, policy, engine = SimTask(GymSim("CartPole-v1", max_episode_steps=20)), ControlPolicy(4, 2), LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0, purpose="eval")
    held_out = task.on("held_out")
    episodes = EpisodicRollout(max_envs=4).collect([(i, held_out[i]) for i in range(6)], ctx)
    for i, episode in enumerate(episodes):
        start, _ = gymnasium.make("CartPole-v1").reset(seed=held_out[i].info["seed"])
        assert episode.turns[0].completion.observation["state"].tolist() == start.tolist()
        assert task.score(episode)["return"] == len(episode.turns)
        assert (episode.ended == "time") == (len(episode.turns) == 20)
    assert {episode.ended for episode in episodes} <= {"done", "time"}


@pytest.mark.parametrize("name", ["CartPole-v1", "InvertedPendulum-v5"])
def test_a_saved_simulator_goes_on_bit_for_bit(name):
    if name.startswith("Inverted"):
        pytest.importorskip("mujoco")
    sim = GymSim(name, max_episode_steps=30)
    venv, again = sim.make(2), sim.make(2)
    venv.reset(seed=[1, 2])
    rng = np.random.default_rng(0)
    discrete = isinstance(venv.single_action_space, gymnasium.spaces.Discrete)
    actions = rng.integers(0, 2, (60, 2)) if discrete else rng.normal(size=(60, 2, 1)).astype(np.float32)

    def play(env, part):
        out = []
        for action in part:
            seen, reward, terminated, truncated, _ = env.step(action)
            over = terminated | truncated
            out.append((seen.tobytes(), reward.tobytes(), over.tobytes()))
            if over.any():  # unseeded: the environments' own random streams go on
                out.append(env.reset(options={"reset_mask": over})[0].tobytes())
        return out

    play(venv, actions[:7])
    again.load_state_dict(copy.deepcopy(venv.state_dict()))
    expected = play(venv, actions[7:])
    assert play(again, actions[7:]) == expected
    with pytest.raises(ValueError, match="the saved simulator has 2 environments, this one 3"):
        sim.make(3).load_state_dict(venv.state_dict())


class Brittle(gymnasium.Env):
    """Raises at its second step; a new one works no better."""

    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (1,)), gymnasium.spaces.Discrete(2)
    result = 0

    def __init__(self):
        Brittle.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.normal(size=1), {}

    def step(self, action):
        self.time += 1
        if self.time == 2:
            raise RuntimeError("snap")
        return np.array([0.5]), 1.0, False, False, {}


def test_a_guarded_env_fails_alone_and_is_made_anew(caplog):
    Brittle.made = 0
    guard = Guard(Brittle)
    guard.reset(seed=5)
    guard.step(0)
    seen, reward, terminated, truncated, info = guard.step(0)
    assert (seen.tolist(), reward, terminated, truncated) == ([0.5], 0.0, False, True)
    assert info == {"error": "RuntimeError: snap"} and "snap" in caplog.text
    first, _ = guard.reset()
    assert Brittle.made == 2
    other = Guard(Brittle)
    other.reset(seed=5)
    other.step(0)
    other.step(0)
    assert other.reset()[0] == first != guard.reset(seed=5)[0]  # a function of seed and failure; not the first episode


def test_an_error_reaches_the_infos_of_its_env_only():
    gymnasium.register("tests/Brittle-v0", entry_point=Brittle)
    venv = GymSim("tests/Brittle-v0").make(2)
    venv.reset(seed=[0, 1])
    venv.step(np.array([0, 0]))
    venv.reset(options={"reset_mask": np.array([True, False])})
    _, _, _, truncated, infos = venv.step(np.array([0, 0]))
    assert truncated.tolist() == [False, True]
    assert [bool(error) for error in infos["error"]] == [False, True]


@pytest.mark.parametrize("speed", [1e12, np.nan])
def test_a_mujoco_env_that_diverged_fails_instead_of_starting_over(speed):
    pytest.importorskip("mujoco")
    venv = GymSim("InvertedPendulum-v5").make(2)
    venv.reset(seed=[0, 1])
    action = np.zeros((2, 1), np.float32)
    assert not venv.step(action)[3].any()
    venv.envs[1].unwrapped.data.qvel[0] = speed
    seen, rewards, terminated, truncated, infos = venv.step(action)
    assert truncated.tolist() == [False, True] and not terminated.any() and rewards[1] == 0
    assert np.isfinite(seen).all() and "diverged" in infos["error"][1] and not infos["error"][0]
    venv.reset(options={"reset_mask": np.array([False, True])})
    assert not venv.step(action)[3].any()


def test_cameras_are_made_cheap():
    pytest.importorskip("mujoco")
    quality = GymSim("InvertedPendulum-v5").make_env().unwrapped.model.vis.quality
    assert (quality.shadowsize, quality.offsamples) == (0, 0)
    assert GymSim("InvertedPendulum-v5", fast_render=False).make_env().unwrapped.model.vis.quality.shadowsize > 0


CLASSIC, PHYSICS = ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"), ("InvertedPendulum-v5", "HalfCheetah-v5")


def played(venv, actions):
    """Everything that some steps give."""
    out = []
    for action in actions:
        seen, rewards, terminated, truncated, _ = venv.step(action)
        out.append((seen.tobytes(), rewards.tolist(), terminated.tolist(), truncated.tolist()))
    return out


@pytest.mark.parametrize("name", [*CLASSIC, *PHYSICS])
def test_the_state_is_plain_data_that_a_new_simulator_goes_on_from(name, tmp_path):
    if name in PHYSICS:
        pytest.importorskip("mujoco")
    venv, again = (GymSim(name, autoreset="same_step", max_episode_steps=15).make(2) for _ in range(2))
    venv.reset(seed=[3, 4])
    venv.action_space.seed(0)
    actions = [venv.action_space.sample() for _ in range(60)]
    played(venv, actions[:20])
    torch.save(venv.state_dict(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    assert list(saved) == ["plain"]
    again.load_state_dict(saved)
    assert played(again, actions[20:]) == played(venv, actions[20:])


def test_a_state_that_is_more_than_data_says_that_it_is_pickled(tmp_path):
    pytest.importorskip("minigrid")
    venv, again = (GymSim("BabyAI-GoToRedBall-v0").make(1) for _ in range(2))
    venv.reset(seed=[3])
    venv.step(np.array([1]))
    state = venv.state_dict()
    assert list(state) == [PICKLED] and state[PICKLED].dtype == torch.uint8
    again.load_state_dict(state)
    assert again.envs[0].unwrapped.agent_dir == venv.envs[0].unwrapped.agent_dir
