"""A level reaches the environment's reset, or its attributes, and comes back with the end of the episode."""

import numpy as np
import pytest

from sims.gym import GymSim
from sims.levels import GymLevelSim, LevelTask
from sims.workers import WorkerSim

ID = "tests.sims.levels.climb:tests/Climb-v0"
CLIMB = GymLevelSim(ID)


def seed_at(sim, start=0, **level) -> int:
    return sim.level_space.encode(level, start) << 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_declared_level_reaches_reset_and_is_reported_at_the_end(workers):
    sim = WorkerSim(CLIMB, workers) if workers else CLIMB
    env = sim.make(2)
    seen, _ = env.reset(seed=[seed_at(CLIMB, steps=1.0, gift=-1.0), seed_at(CLIMB, steps=5.0, gift=1.0)])
    assert seen[:, :2].tolist() == [[1, -1], [5, 1]]
    _, rewards, ended, _, infos = env.step(np.zeros(2, np.int64))
    assert rewards.tolist() == [-1, 1] and ended.tolist() == [True, False]
    assert infos["scores"]["level/steps"][0] == 1 and infos["scores"]["level/gift"][0] == -1
    # the first alone goes on, at another level
    mask = np.array([True, False])
    seen, _ = env.reset(seed=[seed_at(CLIMB, 3, steps=5.0, gift=-1.0), 0], options={"reset_mask": mask})
    assert seen[:, :2].tolist() == [[5, -1], [5, 1]]
    env.close()


def test_the_initial_state_differs_between_the_starts_of_a_level():
    env = CLIMB.make(3)
    seeds = [seed_at(CLIMB, start, steps=5.0, gift=1.0) for start in (0, 1, 0)]
    seen, _ = env.reset(seed=seeds)
    assert seen[0, 2] == seen[2, 2] != seen[1, 2]


def test_attributes_of_an_environment_that_knows_no_levels_are_set():
    sim = GymLevelSim("Pendulum-v1", levels={"g": [5, 15], "l": [0.5, 2.0]})
    env = sim.make(2)
    env.reset(seed=[seed_at(sim, g=5.0, l=2.0), seed_at(sim, g=15.0, l=0.5)])
    inner = [each.unwrapped for each in env.envs]
    assert [(each.g, each.l) for each in inner] == [(5.0, 2.0), (15.0, 0.5)]
    # gymnasium's dynamics: thdot' = thdot + (3 g / (2 l) sin th + 3 / (m l^2) u) dt, with u = 0, m = 1 and dt = .05
    states = [each.state.copy() for each in inner]
    env.step(np.zeros((2, 1)))
    for (theta, speed), each, (g, length) in zip(states, inner, [(5.0, 2.0), (15.0, 0.5)]):
        expected = np.clip(speed + 3 * g / (2 * length) * np.sin(theta) * 0.05, -8, 8)
        assert each.state[1] == pytest.approx(expected, abs=1e-12)
    assert sim.contract()["levels"] == {"g": [5.0, 15.0], "l": [0.5, 2.0]}


def test_other_bounds_of_a_declared_parameter_and_a_level_that_is_observed():
    sim = GymLevelSim(ID, levels={"gift": [0.0, 0.5]}, observe_level=True)
    assert sim.level_space.bounds == {"steps": (1.0, 5.0), "gift": (0.0, 0.5)}
    assert sim.sizes()["observation_dims"] == 5
    seen, _ = sim.make(1).reset(seed=[seed_at(sim, steps=5.0, gift=0.0)])
    # the parts of a dict stand in the order of their names: level, then observation
    assert seen[0, :4].tolist() == [1.0, -1.0, 5.0, 0.0]


def test_options_choose_a_level_and_a_reset_without_any_keeps_it():
    env = CLIMB.make_registered()
    for _ in range(2):
        seen, _ = env.reset(seed=1, options={"level": {"steps": 2.0, "gift": 0.25}})
        assert seen[:2].tolist() == [2.0, 0.25]
    assert env.reset()[0][:2].tolist() == [2.0, 0.25]


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ({"steps": 2.0}, r"a level must name \['gift', 'steps'\], got \['steps'\]"),
        ({"steps": 2.0, "gift": 0.5, "slope": 1.0}, r"a level must name"),
        ({"steps": 2.0, "gift": 7.0}, r"level gift=7 is out of its bounds \[-1, 1\]"),
    ],
)
def test_options_with_another_level_are_refused(level, message):
    with pytest.raises(ValueError, match=message):
        CLIMB.make_registered().reset(seed=1, options={"level": level})


def test_a_saved_environment_goes_on_at_its_level():
    env, other = CLIMB.make(2), CLIMB.make(2)
    env.reset(seed=[seed_at(CLIMB, steps=5.0, gift=0.5), seed_at(CLIMB, steps=2.0, gift=0.5)])
    env.step(np.zeros(2, np.int64))
    state = env.state_dict()
    assert "plain" in state
    other.load_state_dict(state)
    for first, second in zip(env.step(np.zeros(2, np.int64)), other.step(np.zeros(2, np.int64))):
        assert str(first) == str(second)
    assert (other._terminations == [False, True]).all()


def test_a_failure_is_an_error_and_the_next_level_is_the_one_that_is_asked_for():
    sim = GymLevelSim(ID, kwargs={"fault": True})
    env = sim.make(1)
    env.reset(seed=[seed_at(sim, steps=3.0, gift=1.0)])
    _, _, _, truncated, infos = env.step(np.zeros(1, np.int64))
    assert truncated[0] and "slid" in infos["error"][0]
    seen, _ = env.reset(seed=[seed_at(sim, steps=5.0, gift=-1.0)])
    assert seen[0, :2].tolist() == [5.0, -1.0]


def test_refusals_name_what_there_is():
    with pytest.raises(ValueError, match=r"sim.id='CartPole-v1': the environment declares no levels.*'gravity'"):
        GymLevelSim("CartPole-v1").level_space  # noqa: B018
    with pytest.raises(ValueError, match=r"sim.levels has \['mass'\].*'gravity'"):
        GymLevelSim("CartPole-v1", levels={"mass": [1, 2], "gravity": [1, 2]}).level_space  # noqa: B018
    with pytest.raises(ValueError, match=r"sim.levels has \['slope'\], but.*declares the levels \['gift', 'steps'\]"):
        GymLevelSim(ID, levels={"slope": [1, 2]}).level_space  # noqa: B018
    with pytest.raises(ValueError, match=r"sim.id='Pendulum-v1': levels.g must be two ascending numbers"):
        GymLevelSim("Pendulum-v1", levels={"g": [5, 5]}).level_space  # noqa: B018
    with pytest.raises(ValueError, match=r"set sim\.autoreset=disabled"):
        GymLevelSim(ID, autoreset="next_step")
    with pytest.raises(ValueError, match=r"task=levels needs a simulator with levels.*CartPole-v1"):
        LevelTask(GymSim("CartPole-v1"))
