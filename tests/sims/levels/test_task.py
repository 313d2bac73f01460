"""Training problems at any level, held-out problems on a grid; a seed belongs to one of the splits."""

import pytest

from sims.levels import LevelTask
from sims.task import split_of
from tests.sims.levels.test_sim import CLIMB

TASK = LevelTask(CLIMB, count=20, grid=4, starts=2)


def test_any_level_has_a_training_problem():
    index = TASK.level_index({"steps": 5.0, "gift": -1.0}, start=3)
    prompt = TASK[index]
    assert prompt.info["level"] == {"steps": 5.0, "gift": -1.0} and prompt.index == index
    assert prompt.info["seed"] == TASK.sim.level_space.encode(prompt.info["level"], 3) << 1
    assert TASK[TASK.level_index({"steps": 5.0, "gift": -1.0}, start=4)].info["seed"] == prompt.info["seed"] + 2
    # the first problems are a pool of uniform levels, for curricula that know nothing of levels
    assert len(TASK) == 20 and len({tuple(TASK[i].info["level"].values()) for i in range(20)}) == 20
    assert all(split_of(TASK[i].info["seed"]) == "train" for i in (*range(20), index))


def test_held_out_problems_are_the_grid_with_several_starts():
    held_out = TASK.on("held_out")
    assert len(held_out) == 32
    prompts = [held_out[i] for i in range(32)]
    # quarters of [1, 5] have the centres 1.5, 2.5, 3.5, 4.5; a code rounds to 1 of 65535 steps
    assert [p.info["level"]["steps"] for p in prompts[:16:4]] == pytest.approx([1.5, 2.5, 3.5, 4.5], abs=1e-4)
    assert [p.info["level"]["gift"] for p in prompts[:4]] == pytest.approx([-0.75, -0.25, 0.25, 0.75], abs=1e-4)
    assert [p.info["level"] for p in prompts[:16]] == [p.info["level"] for p in prompts[16:]]
    seeds = [p.info["seed"] for p in prompts]
    assert len(set(seeds)) == 32 and all(split_of(seed) == "held_out" for seed in seeds)
    with pytest.raises(IndexError, match="32 held-out problems"):
        held_out[32]
    with pytest.raises(ValueError, match="grid must be at least 1"):
        LevelTask(TASK.sim, grid=0)
