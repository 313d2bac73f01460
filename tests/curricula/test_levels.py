"""Levels are drawn from their box, and the returns of whole episodes come back to the teacher."""

from dataclasses import replace

import numpy as np
import pytest

from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.curricula.levels import LevelCurriculum, UniformLevels
from sims.levels import LevelTask
from tests.curricula.test_sampler import at
from tests.sims.levels.test_sim import CLIMB

TASK = LevelTask(CLIMB)


class Corner(LevelCurriculum):
    """Draws the upper corner of the box, and remembers what it learns."""

    def draw(self, dims, rng):
        return np.full(dims, 1.5)  # is clipped

    def learn(self, level, value):
        self.learned = [*getattr(self, "learned", []), (level.tolist(), value)]


def on_levels(iteration: int = 0, rank: int = 0) -> Context:
    return Context(TASK, None, None, Sampling(), seed=5, iteration=iteration, rank=rank)


def ended(steps, gift, ended="done", group=0, **scores):
    prompt = Prompt("climb/env/0")
    return Episode(prompt, group, 0, ended=ended, scores={"level/steps": steps, "level/gift": gift, **scores})


def levels(curriculum, count=400, ctx=None):
    indices = curriculum.select(count, ctx or on_levels())
    return np.array([list(TASK[index].info["level"].values()) for index in indices])


def test_uniform_levels_fill_the_box():
    drawn = (levels(UniformLevels(), 2000) - [1, -1]) / [4, 2]
    # uniform on [0, 1]: standard error of the mean .0065
    assert abs(drawn.mean(0) - 0.5).max() < 0.03 and abs(drawn.var(0) - 1 / 12).max() < 0.01
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.08


def test_draws_go_on_after_a_resume_and_agree_between_processes():
    one, other, resumed = UniformLevels(), UniformLevels(), UniformLevels()
    first = one.select(5, on_levels())
    assert first == other.select(5, on_levels(rank=1)) and len(set(first)) == 5
    resumed.load_state_dict(one.state_dict())
    again = one.select(5, on_levels(1))
    assert again == resumed.select(5, on_levels(1)) and not set(again) & set(first)


def test_a_level_out_of_the_cube_is_clipped():
    assert levels(Corner(), 3).tolist() == [[5.0, 1.0]] * 3


def test_whole_episodes_are_learned_from_by_their_return():
    teacher = Corner()
    teacher.select(1, on_levels())
    teacher.observe(
        [
            # a segment's own return is that of its last piece
            [ended(2.0, 0.0, **{"return": 1.0, "episode_return": 6.0})],
            [ended(5.0, -1.0, "time", **{"return": 3.0}), replace(ended(5.0, -1.0, **{"return": 5.0}), sample_index=1)],
            [ended(1.0, 1.0, "cut", **{"return": 9.0})],
            [ended(1.0, 1.0, "error", **{"return": 9.0})],
        ]
    )
    # steps 2 of [1, 5] is a quarter; the second group has the mean of 3 and 5
    assert teacher.learned == [([0.25, 0.5], 6.0), ([1.0, 0.0], 4.0)]
    teacher.score_name = "success"
    teacher.observe([[ended(2.0, 0.0, success=1.0, **{"return": 1.0})]])
    assert teacher.learned[-1] == ([0.25, 0.5], 1.0)
    # the groups of two processes are learned from in the order of their numbers
    teacher.observe([[ended(1.0, 1.0, group=number, success=float(number))] for number in (0, 2, 1, 3)])
    assert [value for _, value in teacher.learned[-4:]] == [0.0, 1.0, 2.0, 3.0]


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"task 'numbers' has none: take task=levels sim=levels"):
        UniformLevels().select(1, at(0))
    teacher = Corner()
    teacher.select(1, on_levels())
    with pytest.raises(ValueError, match=r"scores \['level/steps', 'level/gift'\] are missing"):
        teacher.observe([[Episode(Prompt("climb/env/0"), 0, 0, scores={"return": 1.0})]])
    with pytest.raises(ValueError, match=r"score_name='return' is no score.*'level/gift'"):
        teacher.observe([[ended(1.0, 1.0)]])
