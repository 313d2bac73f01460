"""A simulator's process that dies in a reset is started again once; a second death is one error with name and cause."""

import numpy as np
import pytest

from tests.sims.workers.dying import DEADLY
from tests.sims.workers.test_endings import wait_until_gone

pytest.importorskip("msgpack")
from sims.workers.process import Program, SimulatorError
from sims.workers.vector import WorkerVectorEnv


@pytest.fixture
def make(tmp_path):
    """Make a vector environment in two processes."""
    (tmp_path / "deaths").write_text("")

    def build(num_envs=2, **options):
        description = {"_target_": "tests.sims.workers.dying:Guest", "deaths": str(tmp_path / "deaths"), **options}
        return WorkerVectorEnv(Program(description, timeout_s=2.0), num_envs, 2)

    return build


def list_children(env):
    """The numbers of the processes that the environments started."""
    return [int(number) for number in env.reset(seed=list(range(env.num_envs)))[0]["state"][:, 1]]


@pytest.mark.parametrize("how", ["die", "hang"])
def test_a_process_that_dies_in_a_reset_is_started_again_at_once(how, make):
    env = make(how=how)
    one, two = list_children(env)
    first, infos = env.reset(seed=[5, DEADLY])
    assert first["state"][:, 0].tolist() == [5, DEADLY] and first["instruction"] == ["step from 5", "step from 13"]
    assert env.pool.restarts == 1 and "error" not in infos and first["state"][0, 1] == one
    observations, rewards, _, truncated, infos = env.step(np.zeros(2, int))
    assert observations["state"][:, 0].tolist() == [6, DEADLY + 1] and rewards.tolist() == [1, 1]
    assert not truncated.any() and "error" not in infos
    env.close()
    assert all(map(wait_until_gone, (one, two, int(first["state"][1, 1]))))


def test_the_first_reset_may_die_too(make):
    env = make()
    first, _ = env.reset(seed=[DEADLY, DEADLY])  # both processes may die, one after the other at the latest
    assert first["state"][:, 0].tolist() == [DEADLY, DEADLY] and 1 <= env.pool.restarts <= 2
    env.close()


def test_episodes_that_were_played_beside_a_deadly_reset_are_errors(make):
    env = make(4)  # environments 2 and 3 share a process
    env.reset(seed=[0, 1, 2, 3])
    env.step(np.zeros(4, int))
    mask = np.array([False, False, False, True])
    again, _ = env.reset(seed=[0, 0, 0, DEADLY], options={"reset_mask": mask})
    assert again["state"][[0, 1, 3], 0].tolist() == [1, 2, DEADLY]
    _, rewards, _, truncated, infos = env.step(np.zeros(4, int))
    assert truncated.tolist() == [False, False, True, False] and rewards.tolist() == [1, 1, 0, 1]
    assert [error is not None for error in infos["error"]] == [False, False, True, False]
    assert "process 2 of 2 of tests.sims.workers.dying:Guest" in infos["error"][2] and "SIGKILL" in infos["error"][2]
    _, _, _, truncated, infos = env.step(np.zeros(4, int))  # it keeps still, and is no second error
    assert truncated.tolist() == [False, False, True, False] and not any(infos.get("error", [None]))
    env.reset(seed=[0, 0, 9, 0], options={"reset_mask": np.array([False, False, True, False])})
    observations, *_, truncated, infos = env.step(np.zeros(4, int))
    assert observations["state"][:, 0].tolist() == [4, 5, 10, DEADLY + 3] and not truncated.any()
    env.close()


@pytest.mark.parametrize(("how", "cause"), [("die", "signal SIGKILL"), ("hang", "no answer within 2 s")])
def test_a_seed_that_always_ends_its_process_is_one_error(how, cause, make):
    env = make(most=10, how=how)
    children = list_children(env)
    with pytest.raises(SimulatorError, match=rf"process 2 of 2 of tests\.sims\.workers\.dying:Guest: .*{cause}.*reset"):
        env.reset(seed=[5, DEADLY])
    assert env.reset(seed=[5, 6])[0]["state"][:, 0].tolist() == [5, 6]  # other seeds work
    env.close()
    assert all(map(wait_until_gone, children))


def test_a_process_that_dies_while_environments_are_made_is_named(make):
    with pytest.raises(SimulatorError, match=r"tests\.sims\.workers\.dying:Guest: .* be made: .*exit code 7"):
        make(how="make")
