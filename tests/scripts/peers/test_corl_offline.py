"""What stands in for gym and D4RL when CORL's files run, and the table of both."""

import sys

import gymnasium
import numpy as np
import pytest

from scripts.peers.corl_offline import SETTINGS, GymPendulum, format_scores, run_corl

ANCHORS = {"random": -1200.0, "expert": -200.0}
LOG = {
    "observations": np.zeros((4, 3), np.float32),
    "actions": np.array([[2.0], [-1.0], [0.5], [0.0]], np.float32),
    "rewards": np.zeros(4, np.float32),
}


def test_actions_are_between_minus_one_and_one():
    env = GymPendulum(LOG, ANCHORS)
    assert env.action_space.high == 1 and env.read_dataset()["actions"].ravel().tolist() == [1.0, -0.5, 0.25, 0.0]
    assert LOG["actions"][0] == 2  # the log stays


def test_a_seed_gives_the_states_of_gymnasium_and_the_next_episodes_differ():
    ours, theirs = GymPendulum(LOG, ANCHORS), gymnasium.make("Pendulum-v1")
    ours.seed(7)
    state, _ = theirs.reset(seed=7)
    np.testing.assert_array_equal(ours.reset(), state)
    for action in (0.5, -3.0):  # the second is beyond the bounds
        next_state, reward, done, _ = ours.step(np.array([action], np.float32))
        expected, expected_reward, *_ = theirs.step(np.array([2 * max(action, -1)], np.float32))
        np.testing.assert_array_equal(next_state, expected)
        assert reward == pytest.approx(expected_reward) and not done
    np.testing.assert_array_equal(ours.reset(), theirs.reset()[0])


def test_an_episode_has_200_steps_and_the_wrapped_state_is_the_transformed_one():
    env = GymPendulum(LOG, ANCHORS)
    env.transform = lambda state: 0 * state + 5
    assert (env.reset() == 5).all()
    ends = [env.step(np.zeros(1, np.float32))[2] for _ in range(200)]
    assert ends == [False] * 199 + [True]


def test_a_score_is_the_share_of_the_way_to_the_expert():
    assert GymPendulum(LOG, ANCHORS).get_normalized_score(np.array([-700.0, -200.0])).tolist() == [0.5, 1.0]


FILE = """
import d4rl, gym, pyrallis, wandb
from dataclasses import dataclass

@dataclass
class TrainConfig:
    device: str
    seed: int
    max_timesteps: int
    eval_freq: int
    n_episodes: int

@pyrallis.wrap()
def train(config):
    env = gym.make("any")
    rows = d4rl.qlearning_dataset(env)
    env = gym.wrappers.TransformObservation(env, lambda state: state)
    wandb.init(project="none")
    wandb.run.save()
    for update in range(config.max_timesteps):
        wandb.log({"loss": 1.0}, step=update)
    wandb.log({"d4rl_normalized_score": float(rows["actions"].sum()) + config.seed}, step=config.max_timesteps)
"""


def test_a_file_of_corl_runs_with_the_stand_ins_which_are_gone_afterwards(tmp_path):
    """Actions sum to .75; the score of seed 3 is 3.75."""
    folder = tmp_path / "algorithms" / "offline"
    folder.mkdir(parents=True)
    (folder / "td3_bc.py").write_text(FILE)
    before = {name: sys.modules.get(name) for name in ("gym", "d4rl", "wandb", "pyrallis")}
    assert run_corl(tmp_path, "TD3+BC", GymPendulum(LOG, ANCHORS), seed=3) == 3.75
    assert {name: sys.modules.get(name) for name in before} == before


def test_table_by_hand():
    """Of 40 and 60 Student's interval is 50 +- 12.706 * 10."""
    ours = {"medium": {"IQL": {"0": 40.0, "1": 60.0}}}
    theirs = {"medium": {"IQL": {"0": 50.0, "1": 50.0}}}
    assert format_scores(ours, theirs).splitlines()[-1] == "| medium | IQL | 50 [-77, 177] | 50 [50, 50] |"
    with pytest.raises(SystemExit, match="medium/IQL"):
        format_scores({"medium": {"IQL": {"0": 40.0}}}, theirs)
    assert set(SETTINGS) == {"IQL", "CQL", "TD3+BC", "AWAC"}
