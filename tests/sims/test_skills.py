import numpy as np
import pytest
from gymnasium import spaces

from sims.gym import GymSim
from sims.point import PointSim
from sims.skills import SkillConditionedSim

SIM = SkillConditionedSim(PointSim(steps=3, speed=1.0, half=2.5))


def test_an_episode_keeps_its_skill_and_a_seed_has_one():
    env = SIM.make(3)
    seen, _ = env.reset(seed=[5, 6, 5])
    assert seen.shape == (3, 4) and seen.dtype == np.float32 and (seen[0] == seen[2]).all()
    assert np.linalg.norm(seen[:, 2:], axis=1) == pytest.approx(1, abs=1e-6) and (seen[0] != seen[1]).any()
    after, reward, ended, cut, _ = env.step(np.ones((3, 2)))
    assert (after[:, 2:] == seen[:, 2:]).all() and (reward == 0).all() and not ended.any() and not cut.any()
    again, _ = env.reset(seed=[0, 6, 0], options={"reset_mask": np.array([False, True, False])})
    assert (again[0] == after[0]).all() and (again[1] == seen[1]).all()


def test_walls_stop_the_point_and_time_ends_its_episode():
    env = SIM.sim.make(1)
    env.reset(seed=[0])
    for step in range(4):
        seen, _, ended, cut, info = env.step(np.array([[1.0, -9.0]]))
        assert cut[0] == (step >= 2) and not ended[0]
    assert seen[0].tolist() == [1, -1] and info["scores"]["x_m"][0] == 2.5


def test_a_saved_env_goes_on():
    env, other = SIM.make(2), SIM.make(2)
    env.reset(seed=[1, 2])
    env.step(np.full((2, 2), 0.3))
    other.load_state_dict(env.state_dict())
    for first, second in zip(env.step(np.full((2, 2), 0.2))[:4], other.step(np.full((2, 2), 0.2))[:4]):
        assert (first == second).all()


def test_sizes_and_spaces_agree():
    assert SIM.sizes()["observation_dims"] == SIM.make(1).single_observation_space.shape[0] == 4
    assert isinstance(SIM.make(2).observation_space, spaces.Box)
    with pytest.raises(ValueError, match="autoreset=disabled"):
        SkillConditionedSim(GymSim("Pendulum-v1", autoreset="next_step")).make(1)


def test_one_of_several_skills():
    drawn = np.stack([SkillConditionedSim(PointSim(), 4, "one_hot").skill(seed) for seed in range(50)])
    assert (drawn.sum(1) == 1).all() and (drawn.max(0) == 1).all()
