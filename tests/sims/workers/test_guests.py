"""Simulators under another Python, which has neither mmrl nor torch."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mmrl.core.types import Sim
from sims.gym import GymSim
from sims.task import SimTask
from tests.sims.workers import fragile
from tests.sims.workers.equality import assert_equal, play

pytest.importorskip("msgpack")
from sims.host.vector import GuestVectorEnv
from sims.workers import process
from sims.workers.demonstrations import demonstrate
from sims.workers.guest import GuestSim, NamedGuest
from sims.workers.process import SimulatorError


@pytest.fixture
def guest(bare_python, tmp_path, monkeypatch):
    """Makes guests of fragile.py, which is in the working directory alone."""
    shutil.copy(fragile.__file__, tmp_path / "walk.py")
    monkeypatch.chdir(tmp_path)
    return lambda **given: NamedGuest("walk:Guest", python=bare_python, **given)


def test_it_states_itself_and_nothing_else_is_imported(guest):
    sim = guest(options={"size": 3})
    assert isinstance(sim, Sim) and sim.name == "fragile"
    assert (sim.sizes(), sim.contract()) == ({"action_dims": 3}, {"sim": "fragile", "size": 3})
    assert not {module.split(".")[0] for module in sim._statement()["modules"]} & {"torch", "mmrl", "hydra"}
    tasks = {prompt.info["task"] for prompt in map(SimTask(sim, count=30).__getitem__, range(30))}
    assert tasks == {"left", "right"}
    env = sim.make(2)
    env.reset(seed=[0, 1])
    assert (sim.expert(env) == fragile.GO).all() and env.render(1).shape == (4, 4, 3)
    env.close()


def test_results_do_not_depend_on_processes_and_interpreters(bare_python):
    registered = "sims.host.registered:Registered"
    one = GymSim("Pendulum-v1", max_episode_steps=7)
    options = {"id": "Pendulum-v1", "max_episode_steps": 7}
    expected = play(one, 5, 20)
    for workers in (1, 3):
        sim = NamedGuest(registered, options, python=bare_python, workers=workers)
        assert sim.sizes() == one.sizes() and sim.contract() == one.contract()
        assert_equal(expected, play(sim, 5, 20))


def test_errors_of_the_other_side_have_their_last_line(guest, bare_python, tmp_path):
    with pytest.raises(SimulatorError, match=r"walk:Guest: ValueError: size must be at least 1, got 0"):
        guest(options={"size": 0})
    with pytest.raises(SimulatorError, match=r"nowhere:It: ModuleNotFoundError: No module named 'nowhere'"):
        NamedGuest("nowhere:It", python=bare_python)
    with pytest.raises(ValueError, match="there is no such file"):
        NamedGuest("walk:Guest", python=str(tmp_path / "python"))
    with pytest.raises(ValueError, match=r"sim.python is missing"):
        NamedGuest("walk:Guest")
    site = next(Path(bare_python).parents[1].glob("lib/python*/site-packages/msgpack"))
    aside = site.rename(site.with_name("aside"))
    try:
        with pytest.raises(SimulatorError, match=r"exit code 1: ModuleNotFoundError: No module named 'msgpack'"):
            guest(options={"size": 5})
    finally:
        aside.rename(site)


def test_another_protocol_is_refused(guest, monkeypatch):
    monkeypatch.setattr(process, "PROTOCOL", 99)
    with pytest.raises(SimulatorError, match=r"speaks version \d+ of the simulator protocol, this mmrl version 99"):
        guest(options={"size": 7})


def test_failures_are_errors_of_their_episodes(guest):
    env = guest(workers=2).make(4)
    begun, infos = env.reset(seed=[0, 1, 2, 3])
    assert infos["task"].tolist() == ["count"] * 4
    actions = np.array([fragile.GO, fragile.RAISE, fragile.DIE, fragile.GO])
    _, _, _, truncated, infos = env.step(actions)
    assert truncated.tolist() == [False, True, True, True]
    assert infos["error"][1] == "ValueError: a broken joint" and "SIGKILL" in infos["error"][2]
    again, _ = env.reset(seed=[0, 1, 2, 3], options={"reset_mask": truncated})
    assert (again["state"][1:] == begun["state"][1:]).all() and again["state"][0, 1] == 1
    env.close()


class Walk(GuestSim):
    """A guest with an environment folder of its own."""

    guest = "walk:Guest"
    environment = ".venv-walk"
    make_target = "walk"

    def guest_arguments(self):
        return {}


def test_the_environment_is_found_beside_the_run(guest, bare_python, tmp_path):
    with pytest.raises(ValueError, match=r"no .venv-walk/bin/python: run `make walk`"):
        Walk()
    (tmp_path / ".venv-walk").symlink_to(Path(bare_python).parents[1])
    assert json.dumps(Walk().contract()) == '{"sim": "fragile", "size": 1}'


def test_a_reset_that_fails_is_tried_once_more_on_a_new_simulator(bare_python):
    env = GuestVectorEnv(fragile.Fragile, 2)
    begun, _ = env.reset(seed=[0, 1])
    env.step([fragile.GO, fragile.GO])
    env.envs[0].failed = True  # what no step has shown
    again, infos = env.reset(seed=[0, 1])
    assert (again["state"] == begun["state"]).all() and "error" not in infos
    with pytest.raises(ValueError, match="no joint to begin with"):
        env.reset(seed=[0, fragile.IMPOSSIBLE])


def test_a_first_observation_that_is_not_finite_is_a_failure():
    class Infinite(fragile.Fragile):
        def _observe(self):
            return {**super()._observe(), "state": np.array([np.nan, 0])}

    with pytest.raises(FloatingPointError, match="first observation"):
        GuestVectorEnv(Infinite, 1).reset(seed=[0])


@pytest.mark.parametrize("failing", [1, 2])
def test_an_expert_whose_simulator_fails_has_another_try(failing):
    """Where one simulator or all of them fail there may be no scores at all."""

    class Failing:
        name, tries = "failing", 0

        def make(self, num_envs):
            self.tries += 1
            return Ends(num_envs, broken=failing if self.tries == 1 else 0)

        def expert(self, env):
            return np.zeros((env.num_envs, 1, 2), np.float32)

    class Ends:
        def __init__(self, num_envs, broken):
            self.num_envs, self.broken = num_envs, broken

        def reset(self, seed):
            return {"state": np.asarray(seed)}, {}

        def step(self, actions):
            over = np.ones(self.num_envs, bool)
            errors = np.array(["a broken joint"] * self.broken + [None] * (self.num_envs - self.broken), object)
            scores = {"success": (errors == None).astype(float)}  # noqa: E711  # element by element
            infos = {"error": errors} if self.broken == self.num_envs else {"error": errors, "scores": scores}
            return {"state": np.zeros(self.num_envs)}, np.zeros(self.num_envs), ~over, over, infos

        def close(self):
            pass

    sim = Failing()
    found = demonstrate(sim, [5, 6], 1, 0.0)
    assert sim.tries == 2 and [demo[0][0]["state"] for demo in found] == [5, 6]
