"""Simulators with a reward model on images."""

import numpy as np

from mmrl.rewards.models.frames import FrameReward
from sims.reward_models import RewardModelSim
from sims.tabletop import Reach
from sims.tabletop.experts import expert
from sims.task import SimTask


class Brightness(FrameReward):
    """The change of the mean grey level, and what it was asked about."""

    def __init__(self):
        self.asked = []

    def __call__(self, before, after, instructions):
        self.asked.append((before.copy(), after.copy(), list(instructions)))
        return after.mean((1, 2, 3)) - before.mean((1, 2, 3))


def play(env, seeds, chunks):
    observation, _ = env.reset(seed=seeds)
    yield observation, None, None
    for chunk in chunks:
        observation, reward, terminated, truncated, _ = env.step(chunk)
        yield observation, reward, terminated | truncated


def test_the_judge_sees_before_and_after_and_pays():
    sim, judge = Reach(image_size=16, threads=1), Brightness()
    chunks = np.random.default_rng(0).uniform(-1, 1, (4, 3, sim.chunk, 3))
    plain = list(play(sim.make(3), [0, 1, 2], chunks))
    total = list(play(RewardModelSim(sim, judge, env_reward_coef=0.5).make(3), [0, 1, 2], chunks))
    over = np.zeros(3, bool)
    for (_, own, ended), (seen, reward, _), (before, _, _) in zip(plain[1:], total[1:], total):
        expected = 0.5 * own
        expected[~over] += (seen["image"].mean((1, 2, 3)) - before["image"].mean((1, 2, 3)))[~over]
        assert np.allclose(reward, expected)
        over |= ended
    assert judge.asked[0][2] == list(plain[0][0]["instruction"])


def test_the_terminal_state_is_drawn_for_the_judge():
    sim, judge = Reach(image_size=16, threads=1), Brightness()
    env = RewardModelSim(sim, judge).make(8)
    env.reset(seed=list(range(8)))
    for _ in range(12):
        over = env.step(expert(env.env))[2]
        if over.any():
            break
    before, after, _ = judge.asked[-1]
    ended = np.flatnonzero(over)
    assert ended.size and len(before) == 8
    assert all((before[i] != after[i]).any() for i in ended)


def test_a_task_is_judged_in_training_alone_and_resumes():
    task = SimTask(Reach(image_size=16, threads=1), reward_model=Brightness())
    assert isinstance(task.sim, RewardModelSim) and isinstance(task.on("train").sim, RewardModelSim)
    assert isinstance(task.on("held_out").sim, Reach) and task.contract() == task.on("held_out").contract()
    assert len(task.demonstrations([task[0]])) == 1
    env = task.sim.make(2)
    chunks = np.random.default_rng(1).uniform(-1, 1, (2, 2, task.sim.sim.chunk, 3))
    env.reset(seed=[0, 1])
    env.step(chunks[0])
    saved = env.state_dict()
    first = env.step(chunks[1])
    env.load_state_dict(saved)
    second = env.step(chunks[1])
    assert np.array_equal(first[1], second[1]) and np.array_equal(first[0]["image"], second[0]["image"])
