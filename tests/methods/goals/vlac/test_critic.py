"""VLAC's critic: its two questions, pairs of demonstrations, rewards and ends of episodes."""

import numpy as np
import pytest
import torch

from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.goals.vlac.critic import DONE, CriticPairs, ProgressCritic
from mmrl.methods.goals.vlac.rollout import CriticCounts, CriticRollout, CriticSim
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.vla.small.token import ActionTokenPolicy
from sims.point.instructed_discs import InstructedDiscs
from sims.point.sim import PointSim
from sims.task import SimTask

SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "visual_tokens": 2}


def test_a_question_about_the_end_shows_one_image_beside_itself():
    """Moment t of four has grey level t: at the end, 3, the answer is 1, and 0 before it."""
    raws = [
        {"image": np.full((2, 2, 3), t, np.uint8), "proprio": np.zeros(2, np.float32), "instruction": "go"}
        for t in range(4)
    ]
    pairs = CriticPairs(done_fraction=1.0)
    asked = [pairs._pair(raws, ["go"], derive_rng("test", i)) for i in range(60)]
    moments = [int(raw["image"][0, 0, 0]) for raw, _ in asked]
    assert all(
        (raw["image"] == moment).all() and raw["image"].shape == (2, 4, 3) for (raw, _), moment in zip(asked, moments)
    )
    assert all(raw["instruction"] == DONE + "go" for raw, _ in asked)
    assert [answer for _, answer in asked] == [float(moment == 3) for moment in moments] and set(moments) == {
        0,
        1,
        2,
        3,
    }
    assert 20 < moments.count(3) < 40
    assert all(
        DONE not in CriticPairs(0.0)._pair(raws, ["go"], derive_rng("test", i))[0]["instruction"] for i in range(9)
    )


@pytest.fixture
def critic():
    torch.manual_seed(0)
    return ActionTokenPolicy(action_dims=1, chunk=1, bins=21, proprio_dims=2, **SIZES)


def test_both_orders_give_half_the_difference(critic):
    before, after = np.random.default_rng(1).integers(0, 256, (2, 3, 16, 16, 3), dtype=np.uint8)
    texts = ["move the white point onto the red disc"] * 3
    plain, both = ProgressCritic(critic), ProgressCritic(critic, both_orders=True, batch_size=2)
    expected = (plain(before, after, texts) - plain(after, before, texts)) / 2
    assert both(before, after, texts) == pytest.approx(expected, abs=1e-5)
    assert (both(before, before, texts) == 0).all() and (plain(before, before, texts) != 0).all()
    asked = plain.predict_done(before, texts)
    assert asked == pytest.approx(plain(before, before, [DONE + text for text in texts]), abs=1e-6)


class Height(ProgressCritic):
    """Progress is the change of the grey level; done where the mean is above 65."""

    def __init__(self):
        self.images = []

    def __call__(self, before, after, instructions):
        self.images.append((before.copy(), after.copy()))
        return after.mean((1, 2, 3)) - before.mean((1, 2, 3))

    def predict_done(self, images, instructions):
        return (images[:, 0, 0, 0] == 250).astype(float)


def test_the_critic_gives_rewards_and_ends_episodes():
    """Point 0 walks into the upper left corner, whose pixel becomes white: done. Point 1 walks away from it."""
    judge, counts = Height(), CriticCounts()
    env = CriticSim(InstructedDiscs(steps=8, speed=0.5), judge, 0.5, counts).make(2)
    first, _ = env.reset(seed=[0, 1])
    env.env._places[:] = [[0, 0], [0.5, -0.5], [-0.5, -0.5]]
    push = np.array([[-1.0, 1.0], [1.0, -1.0]])
    image, ends = first["image"], []
    for step in range(3):
        observation, reward, terminated, truncated, _ = env.step(push)
        rows = [0, 1] if step < 2 else [1]  # what has ended is not asked again
        change = observation["image"].mean((1, 2, 3)) - image.mean((1, 2, 3))
        assert reward[rows] == pytest.approx(change[rows]) and len(judge.images[-1][0]) == len(rows)
        ends.append(terminated.tolist())
        image = observation["image"]
    assert ends == [[False, False], [True, False], [False, False]] and reward[0] == 0 and not truncated.any()
    assert counts.metrics()["rollout/critic/ends"] == 1 and counts.metrics()["rollout/critic/right_ends"] == 0


def test_a_rollout_learns_nothing_of_the_simulators_reward(critic):
    """The same actions with the critic of the run: rewards are its shares, and not the simulator's zeros and ones."""
    sim = InstructedDiscs(steps=4)
    torch.manual_seed(1)
    policy, engine, task = ControlPolicy(8, 2, "gaussian", hidden=[8]), LocalEngine(), SimTask(sim)
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0, models={"critic": critic})
    rollout = CriticRollout(num_envs=2, horizon=8, done_threshold=None)
    episodes = rollout.collect([(0, task[0]), (1, task[1])], ctx)
    rewards = [turn.reward for episode in episodes for turn in episode.turns]
    assert len(rewards) == 16 and len({round(reward, 6) for reward in rewards}) > 10 and max(map(abs, rewards)) < 1
    assert {episode.ended for episode in episodes} <= {"time", "cut"} and rollout.metrics()["rollout/critic/ends"] == 0
    saved = rollout.state_dict()
    again = CriticRollout(num_envs=2, horizon=8, done_threshold=None)
    again.load_state_dict(saved)
    following = [each.collect([], ctx) for each in (rollout, again)]
    assert [t.reward for e in following[0] for t in e.turns] == [t.reward for e in following[1] for t in e.turns]


def test_what_the_critic_needs_is_said():
    task = SimTask(InstructedDiscs())
    ctx = Context(task, LocalEngine(), None, Sampling(), seed=0, iteration=0)
    with pytest.raises(ConfigError, match=r"rollout\.critic='critic' is no model of the run"):
        CriticRollout().collect([], ctx)
    with pytest.raises(ValueError, match="no 'image' and 'instruction'"):
        CriticSim(PointSim(), Height(), None, CriticCounts()).make(1)
    with pytest.raises(ValueError, match="done_threshold"):
        CriticRollout(done_threshold=1.5)
