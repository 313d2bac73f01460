"""PAIRED: regrets by hand, the teacher's gradient and steps against torch, and levels that both students play."""

from collections import Counter

import numpy as np
import pytest
import torch

import sims.mazes  # noqa: F401 registers the environment
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, Sampling
from mmrl.curricula.regret import (
    PAIRED,
    GaussianTeacher,
    UniformPairs,
    flexible_regret,
    paired_regret,
    ppo_gradient,
)
from sims.levels.students import StudentLevelSim
from sims.mazes.task import MazeTask

LAWS = [PAIRED, UniformPairs]
TASK = MazeTask(StudentLevelSim("BlockMaze-v0"))


def context(iteration=0, rank=0):
    return Context(TASK, None, None, Sampling(), seed=5, iteration=iteration, rank=rank)


def played(index, returns, group=0, ended="done"):
    prompt = TASK[index]
    return [Episode(prompt, group, k, ended=ended, scores={"return": value}) for k, value in enumerate(returns)]


def student_of(index):
    return TASK[index].info["seed"] >> 1 & 1


@pytest.mark.parametrize(
    ("protagonist", "antagonist", "paired", "flexible"),
    [
        # .8 - (.2 + .4) / 2; the antagonist is the better one
        ([0.2, 0.4], [0.6, 0.8], 0.5, 0.5),
        # .2 - .5 < 0; the better one is the protagonist: .9 - .2
        ([0.9, 0.1], [0.2, 0.2], 0.0, 0.7),
        ([0.5, 0.5], [0.5, 0.5], 0.0, 0.0),
        # equal best returns: the antagonist's best less the protagonist's mean
        ([0.8, 0.0], [0.8, 0.8], 0.4, 0.4),
    ],
)
def test_regrets_by_hand(protagonist, antagonist, paired, flexible):
    assert paired_regret(protagonist, antagonist) == pytest.approx(paired)
    assert flexible_regret(protagonist, antagonist) == pytest.approx(flexible)


def test_the_gradient_is_that_of_torch():
    rng = np.random.default_rng(0)
    before, parameters = rng.normal(0, 0.3, (2, 2, 3))
    actions, advantages = rng.normal(size=(40, 3)), rng.normal(size=40)
    leaf = torch.tensor(parameters, requires_grad=True)

    def logprob(mean, spread):
        return torch.distributions.Normal(mean, spread.exp()).log_prob(torch.tensor(actions)).sum(dim=1)

    ratio = (logprob(*leaf) - logprob(*torch.tensor(before))).exp()
    clipped, weight = ratio.clamp(0.8, 1.2), torch.tensor(advantages)
    torch.minimum(ratio * weight, clipped * weight).mean().backward()
    assert ((ratio > 1.2) | (ratio < 0.8)).any() and (ratio - 1).abs().min() < 0.2  # both sides of the clip occur
    np.testing.assert_allclose(ppo_gradient(parameters, before, actions, advantages, 0.2), leaf.grad, rtol=1e-10)


def test_its_steps_are_those_of_adam():
    teacher, leaf = GaussianTeacher(3, lr=0.02), torch.zeros(2, 3, dtype=torch.double, requires_grad=True)
    leaf.data[1] = np.log(0.5)
    optimizer = torch.optim.Adam([leaf], lr=0.02, maximize=True)
    for gradient in np.random.default_rng(1).normal(size=(5, 2, 3)):
        teacher._ascend(gradient)
        leaf.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(teacher.parameters, leaf.detach(), rtol=1e-7)


def test_a_teacher_finds_what_is_paid():
    """Reward -|a - (0.6, -0.4)|^2: the mean goes there, and the deviation shrinks."""
    teacher, rng, goal = GaussianTeacher(2, lr=0.03), np.random.default_rng(0), np.array([0.6, -0.4])
    for _ in range(80):
        actions = np.stack([teacher.draw(rng) for _ in range(32)])
        teacher.learn(actions, -((actions - goal) ** 2).sum(axis=1))
    assert np.abs(teacher.parameters[0] - goal).max() < 0.1 and (np.exp(teacher.parameters[1]) < 0.25).all()


def test_equal_regrets_teach_nothing():
    teacher = GaussianTeacher(2, lr=0.1, entropy_coef=1.0)
    teacher.learn(np.ones((4, 2)), np.full(4, 0.3))
    assert teacher.steps == 0


@pytest.mark.parametrize("curriculum", [PAIRED, UniformPairs])
def test_both_students_play_every_level(curriculum):
    indices = curriculum().select(40, context())
    assert [student_of(index) for index in indices] == [0, 1] * 20
    levels = [tuple(TASK[index].info["level"].values()) for index in indices]
    assert levels[::2] == levels[1::2] and len(set(levels)) == 20
    assert indices == curriculum().select(40, context(rank=1))


def test_an_odd_number_of_problems_is_refused():
    with pytest.raises(ConfigError, match=r"data.num_prompts=7 must be even"):
        UniformPairs().select(7, context())
    with pytest.raises(ValueError, match=r"curriculum.regret must be one of \['flexible', 'paired'\]"):
        PAIRED(regret="none")
    with pytest.raises(ValueError, match=r"curriculum.lr"):
        PAIRED(lr=0.0)


def test_the_teacher_is_paid_the_regret_of_its_own_action():
    """Groups arrive in any order; a level of which one student has no finished episode is left out."""
    curriculum, judged = PAIRED(), []
    curriculum.judge = lambda actions, regrets: judged.append((actions, regrets))
    indices = curriculum.select(6, context())
    groups = [
        played(indices[3], [0.9, 0.7], group=3),
        played(indices[0], [0.2, 0.4], group=0),
        played(indices[2], [0.1, 0.3], group=2),
        played(indices[1], [0.6, 0.8], group=1),
        played(indices[4], [0.5], group=4),
        played(indices[5], [0.5], group=5, ended="error"),
    ]
    curriculum.observe(groups)
    ((actions, regrets),) = judged
    np.testing.assert_allclose(regrets, [0.5, 0.7])
    # the level of an action in [-1, 1]^9 is its place between the bounds of the cells, in steps of 25 / 31
    for action, index in zip(actions, (indices[0], indices[2])):
        cells = np.array(list(TASK[index].info["level"].values()))
        np.testing.assert_allclose(25 * (np.clip(action, -1, 1) + 1) / 2 - 0.5, cells, atol=0.41)


def test_levels_go_where_the_regret_is():
    """Regret 1 where the goal is in the last ten cells, else 0: 40 % of uniform levels, and 80 % after teaching."""
    curriculum, shares = PAIRED(lr=0.03), []
    for iteration in range(30):
        indices = curriculum.select(64, context(iteration))
        late = [TASK[index].info["level"]["goal"] > 14.5 for index in indices]
        shares.append(np.mean(late))
        groups = [
            played(index, [float(paid and student_of(index))], group=k)
            for k, (index, paid) in enumerate(zip(indices, late))
        ]
        curriculum.observe(groups)
    assert np.mean(shares[:2]) < 0.6 and np.mean(shares[-5:]) > 0.8


def test_a_resumed_teacher_goes_on_alike():
    one, other = PAIRED(), PAIRED()
    for iteration in range(2):
        indices = one.select(16, context(iteration))
        one.observe([played(i, [i % 97 / 97], group=k) for k, i in enumerate(indices)])
    other.load_state_dict(one.state_dict())
    for iteration in (2, 3):
        indices = one.select(16, context(iteration))
        assert indices == other.select(16, context(iteration))
        for each in (one, other):
            each.observe([played(i, [i % 97 / 97], group=k) for k, i in enumerate(indices)])
    np.testing.assert_array_equal(one.teacher.parameters, other.teacher.parameters)


def test_uniform_pairs_are_uniform():
    indices = UniformPairs().select(4000, context())
    goals = Counter(round(TASK[index].info["level"]["goal"]) for index in indices[::2])
    # 31 steps of 25 / 31 make 80 of each cell, or twice as many where two steps round to one cell
    assert set(goals) == set(range(25)) and max(goals.values()) < 190
