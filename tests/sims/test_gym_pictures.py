"""Environments of other packages as a vision-language-action policy meets them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.vla.small.token import ActionTokenPolicy
from mmrl.rollouts.env.episodic import EpisodicRollout
from sims.gym.enums import mend_enums
from sims.gym.image_observations import VLAWrapper
from sims.gym.minigrid import MiniGridSim
from sims.gym.seen_sim import ImageGymSim
from sims.gym.sim import GymSim
from sims.task import SimTask


class Counter(gymnasium.Env):
    """Counts the actions and shows the count as a grey level; success at five, where it may go on."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "count": spaces.Box(0, 99, (1,), np.float32),
            "mission": spaces.Text(20),
        }
    )

    def __init__(self, action_space: spaces.Space, ends: bool = False):
        self.action_space, self.ends = action_space, ends
        self.taken = []

    def _seen(self):
        count = len(self.taken)
        return {"image": np.full((8, 8, 3), count, np.uint8), "count": np.float32([count]), "mission": "count"}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = []
        return self._seen(), {}

    def step(self, action):
        self.taken.append(action)
        done = len(self.taken) == 5
        return self._seen(), 1.0, self.ends and done, False, {"success": done}


def seen(action_space=None, ends=False, **options):
    env = Counter(action_space or spaces.Box(-2, 6, (2,), np.float32), ends)
    return env, VLAWrapper(env, **({"instruction": None, "image_size": 8, "chunk": 3} | options))


def test_a_chunk_stops_at_the_success_and_says_how_much_of_it_was_played():
    env, wrapped = seen()
    wrapped.reset(seed=0)
    _, reward, terminated, _, info = wrapped.step(np.zeros((3, 2)))
    assert (reward, terminated, info["executed"], info["scores"]) == (3.0, False, 3, {"success": 0.0})
    observation, reward, terminated, truncated, info = wrapped.step(np.zeros((3, 2)))
    assert (reward, terminated, truncated) == (2.0, True, False)
    assert info["executed"] == 2 and info["scores"] == {"success": 1.0} and len(env.taken) == 5
    assert observation["image"].mean() == 5 and observation["proprio"].tolist() == [5]


def test_a_success_counts_even_when_the_episode_goes_on_and_is_forgotten_at_the_next():
    env, wrapped = seen(end_on_success=False)
    wrapped.reset(seed=0)
    for _ in range(3):
        _, _, terminated, _, info = wrapped.step(np.zeros((3, 2)))
    assert not terminated and info["scores"] == {"success": 1.0} and len(env.taken) == 9
    wrapped.reset(seed=1)
    assert wrapped.step(np.zeros((3, 2)))[-1]["scores"] == {"success": 0.0}


def test_actions_are_scaled_to_the_box_and_cut_at_its_faces():
    env, wrapped = seen()
    wrapped.reset(seed=0)
    wrapped.step(np.array([[-1, 1], [0, 0.5], [7, -7]]))
    assert np.array_equal(env.taken, [[-2, 6], [2, 4], [6, -2]])


def test_numbered_actions_are_equal_intervals():
    env, wrapped = seen(spaces.Discrete(4, start=10))
    wrapped.reset(seed=0)
    wrapped.step(np.array([[-1.0], [-0.49], [-0.51]]))
    wrapped.step(np.array([[0.0], [1.0], [0.0]]))
    assert env.taken == [10, 11, 10, 12, 13]


def test_images_are_scaled_and_stacked_with_the_newest_last():
    _, wrapped = seen(image_size=4, frames=2)
    first, _ = wrapped.reset(seed=0)
    assert first["image"].shape == (4, 4, 6) and first["image"].max() == 0
    second = wrapped.step(np.zeros((3, 2)))[0]
    assert second["image"][..., :3].max() == 0 and second["image"][..., 3:].min() == 3
    assert wrapped.observation_space.contains(second) and second["instruction"] == "count"


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"give sim\.instruction"):
        VLAWrapper(gymnasium.make("CartPole-v1", render_mode="rgb_array"), None, 64, 1)
    env = VLAWrapper(gymnasium.make("Pendulum-v1"), "swing it up", 64, 1)
    with pytest.raises(ValueError, match="render_mode: rgb_array"), pytest.warns(UserWarning):
        env.reset(seed=0)
    with pytest.raises(ValueError, match="numbered actions or a bounded vector"):
        seen(spaces.MultiDiscrete([2, 3]))


def test_babyai_gives_missions_in_words_and_pixels():
    sim = MiniGridSim("BabyAI-GoToRedBall-v0", chunk=2)
    assert sim.sizes() == {"action_dims": 1, "chunk": 2, "proprio_dims": 1}
    env = sim.make(2)
    observation, _ = env.reset(seed=[1, 2])
    again, _ = sim.make(2).reset(seed=[1, 2])
    assert observation["image"].shape == (2, 56, 56, 3) and np.array_equal(observation["image"], again["image"])
    assert list(observation["instruction"]) == ["go to the red ball", "go to a red ball"]
    whole = MiniGridSim("BabyAI-GoToRedBall-v0", whole=True, image_size=64).make(1)
    assert whole.reset(seed=[1])[0]["image"].shape == (1, 64, 64, 3)


def test_a_vla_plays_babyai():
    task = SimTask(MiniGridSim("BabyAI-GoToRedBall-v0", chunk=2, max_episode_steps=8))
    policy = ActionTokenPolicy(
        **task.sim.sizes(), bins=7, hidden_size=16, layers=1, heads=2, intermediate_size=16, visual_tokens=2
    )
    engine = LocalEngine()
    ctx = Context(task=task, engine=engine, policy=policy, sampling=Sampling(), seed=0, iteration=0, group_size=2)
    engine.sync(policy, 0)
    episodes = EpisodicRollout().collect([(0, task[0])], ctx)
    assert len(episodes) == 2 and all(1 <= len(e.turns) <= 4 for e in episodes)
    assert all(set(task.score(e)) == {"success", "return"} for e in episodes)


def test_old_comparisons_with_enumerations_hold_again():
    import mujoco

    joint = mujoco.mjtJoint
    mend_enums()
    assert joint.mjJNT_FREE == np.int32(0) and np.int32(0) in (joint.mjJNT_FREE, joint.mjJNT_HINGE)
    assert joint.mjJNT_FREE != np.int32(1) and joint.mjJNT_FREE != joint.mjJNT_HINGE
    assert joint.mjJNT_FREE == joint.mjJNT_FREE and {joint.mjJNT_FREE: 1}[joint.mjJNT_FREE] == 1


def test_goal_environments_of_gymnasium_robotics_work_as_states():
    sim = GymSim("gymnasium_robotics:FetchReach-v4")
    assert sim.sizes()["observation_dims"] == 16 and sim.sizes()["actions"] == 4
    env = sim.make(2)
    observation, _ = env.reset(seed=[0, 1])
    assert observation.shape == (2, 16) and not np.array_equal(observation[0], observation[1])
    after, *_ = env.step(np.ones((2, 4), np.float32))
    assert np.isfinite(after).all() and not np.array_equal(after, observation)


def test_mujoco_environments_are_drawn_where_a_back_end_draws():
    from sims.render.probe import probe

    if probe("egl") is not None and probe("osmesa") is not None:
        pytest.skip("no OpenGL here")
    sim = ImageGymSim("Reacher-v5", kwargs={"render_mode": "rgb_array", "width": 48, "height": 48}, instruction="reach")
    env = sim.make(1)
    observation, _ = env.reset(seed=[0])
    assert observation["image"].shape == (1, 64, 64, 3) and observation["image"].std() > 5
    assert sim.contract()["renderer"] in ("egl", "osmesa") and sim.contract()["instruction"] == "reach"
    env.close()
