"""Simulators whose reward is a written program: what it reads, what it pays, and that held-out episodes are the own."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import mmrl
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.runs.run_folder import last_checkpoint
from sims.gym.sim import GymSim
from sims.written.state import read_state
from sims.written.task import WrittenRewardTask
from tests.api.test_training import QUIET

REACHER = """
import math

def reward(before, action, after):
    gap = math.dist(after["bodies"]["fingertip"], after["bodies"]["target"])
    return {"distance": -gap, "effort": -sum(force**2 for force in action)}
"""
COUNT = "def reward(before, action, after):\n    return after['place'] - before['place']\n"


class Walk(gymnasium.Env):
    """A place on a line; the episode ends at 3. Its state has a name of its own."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"mmrl_infos": ["scores"], "render_modes": []}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += 1 if action == 1 else -1
        done = self.place == 3
        scores = {"success": float(done)}
        return np.array([self.place], np.float32), -1.0, done, False, {"scores": scores}

    def named_state(self):
        return {"place": np.int64(self.place)}


gymnasium.register("Walk-v0", entry_point=Walk, max_episode_steps=6)


def written(tmp_path, source, sim, **options):
    path = tmp_path / "reward.py"
    path.write_text(source)
    return WrittenRewardTask(sim, program=str(path), **options)


def test_a_program_that_says_what_gymnasium_says_pays_what_gymnasium_pays(tmp_path):
    """Reacher's reward is minus the distance of fingertip and target, minus the squared torques."""
    task = written(tmp_path, REACHER, GymSim("Reacher-v5"))
    mine, own = task.sim.make(2), task.on("held_out").sim.make(2)
    rng = np.random.default_rng(0)
    for env in (mine, own):
        env.reset(seed=[2, 4])
    for _ in range(50):
        actions = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        reward, expected = mine.step(actions)[1], own.step(actions)[1]
        np.testing.assert_allclose(reward, expected, atol=1e-6)
    assert not mine.step(actions)[1].any()  # the episodes are over


def test_the_names_of_a_mujoco_model_are_its_state():
    env = gymnasium.make("Reacher-v5").unwrapped
    env.reset(seed=0)
    state = read_state(env)
    assert list(state["bodies"]) == ["body0", "body1", "fingertip", "target"] and state["time"] == 0.0
    assert state["bodies"]["target"] == env.data.body("target").xpos.tolist()
    assert state["joints"]["joint0"] == {"position": env.data.qpos[0], "velocity": env.data.qvel[0]}


def test_an_environment_names_its_own_state_and_columns_can_be_named(tmp_path):
    task = written(tmp_path, COUNT, GymSim("Walk-v0"))
    env = task.sim.make(2)
    env.reset(seed=[0, 2])
    assert env.step(np.array([1, 0]))[1].tolist() == [1.0, -1.0]
    columns = written(tmp_path, COUNT, GymSim("Walk-v0"), state_names=["place"], env_reward_coef=0.5)
    env = columns.sim.make(2)
    env.reset(seed=[0, 2])
    assert env.step(np.array([1, 0]))[1].tolist() == [0.5, -1.5]


def test_held_out_episodes_are_paid_by_the_simulator(tmp_path):
    task = written(tmp_path, COUNT, GymSim("Walk-v0"))
    for held_out in (task.on("held_out"), task.on("held_out").on("held_out")):
        env = held_out.sim.make(1)
        env.reset(seed=[1])
        assert env.step(np.array([1]))[1].tolist() == [-1.0]
    env = task.on("held_out").on("train").sim.make(1)
    env.reset(seed=[2])
    assert env.step(np.array([1]))[1].tolist() == [1.0]


def test_recorded_episodes_have_names_and_the_simulators_own_score(tmp_path):
    task = written(tmp_path, COUNT, GymSim("Walk-v0"))
    (right,) = task.record(lambda env, observation: np.array([1]), 1, seed=0)
    assert [(step[0]["place"], step[1], step[2]["place"]) for step in right.steps] == [(0, 1, 1), (1, 1, 2), (2, 1, 3)]
    assert right.score == 1.0  # its success; the return is -3
    pendulum = written(tmp_path, COUNT, GymSim("Pendulum-v1"), state_names=["x", "y", "v"])
    traces = pendulum.record_random(2, seed=0)
    assert [len(trace.steps) for trace in traces] == [200, 200] and all(trace.score < -100 for trace in traces)
    assert traces[0].steps == pendulum.record_random(2, seed=0)[0].steps


def test_a_saved_environment_goes_on_as_the_one_that_was_not_saved(tmp_path):
    sim = written(tmp_path, COUNT, GymSim("Walk-v0")).sim
    one, other = sim.make(2), sim.make(2)
    one.reset(seed=[0, 2])
    one.step(np.array([1, 0]))
    other.reset(seed=[4, 6])
    other.load_state_dict(one.state_dict())
    for actions in ([1, 1], [1, 0], [0, 0]):
        assert one.step(np.array(actions))[1].tolist() == other.step(np.array(actions))[1].tolist()


@pytest.mark.parametrize(
    ("source", "sim", "options", "refused"),
    [
        ("x = 1", "Walk-v0", {}, "no function reward"),
        (COUNT, "CartPole-v1", {}, "CartPoleEnv names no state; .*task.state_names"),
        (COUNT, "CartPole-v1", {"state_names": ["x"]}, "task.state_names has 1 names, .* 4 numbers"),
    ],
)
def test_what_cannot_be_paid_is_refused(source, sim, options, refused, tmp_path):
    with pytest.raises(ValueError, match=refused):
        written(tmp_path, source, GymSim(sim), **options).sim.make(1).reset(seed=[0])


def test_a_missing_program_is_refused():
    with pytest.raises(ValueError, match=r"task.program=/nowhere.py cannot be read"):
        WrittenRewardTask(GymSim("Walk-v0"), program="/nowhere.py")


@pytest.mark.parametrize("state", [{}, 3, {"x": float("nan")}, {"x": object()}])
def test_a_named_state_of_something_else_is_refused(state):
    env = Walk()
    env.named_state = lambda: state
    with pytest.raises(ValueError, match=r"Walk.named_state\(\) must return"):
        read_state(env)


WORDS = (
    *("recipe=ppo_control", "task=written_reward", "sim=gym", "sim.id=Walk-v0"),
    *("rollout.num_envs=2", "rollout.horizon=16", "data.num_minibatches=2", "data.evaluation.count=2"),
    *("trainer.check_val_every_n_epoch=1", "scheduler=constant", "optimizer.lr=1e-2"),
)


def test_a_policy_learns_from_the_program(tmp_path):
    path = tmp_path / "reward.py"
    path.write_text(COUNT)
    run = mmrl.fit(*WORDS, f"task.program={path}", *QUIET, run_dir=tmp_path / "run", trainer={"max_epochs": 6})
    policy, env = run.load_policy(), Walk()
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        observation, reward, done, *_ = env.step(policy.predict(observation)[0])
    assert done and reward == -1.0


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    path = tmp_path / "reward.py"
    path.write_text(COUNT)
    ends = []
    for name, parts in (("whole", (2,)), ("halves", (1, 2))):
        for last in parts:
            words = [*WORDS, f"task.program={path}", *QUIET, f"run_dir={tmp_path / name}", f"trainer.max_epochs={last}"]
            if last != parts[0]:
                words.append(f"ckpt_path={last_checkpoint(tmp_path / name)}")
            cli = CLI(to_lightning(compose(words)))
            cli.fit()
        ends.append(cli.model.policy.state_dict())
    assert all(torch.equal(ends[0][name], value) for name, value in ends[1].items())
