"""sim.workers=N wraps any simulator and leaves the rest of a configuration as it is."""

import pytest

from mmrl.config.compose import compose, to_lightning
from mmrl.config.signatures import pass_workers
from mmrl.core.errors import ConfigError

WORDS = ("recipe=ppo_control", "sim.id=CartPole-v1")


def sim_of(*words):
    return to_lightning(compose([*WORDS, *words]))["data"]["init_args"]["task"]["init_args"]["sim"]


def test_the_simulator_is_wrapped_and_0_is_none():
    plain = sim_of()
    assert plain == sim_of("sim.workers=0") and plain["class_path"] == "sims.gym.GymSim"
    wrapped = sim_of("sim.workers=2", "sim.timeout_s=5")
    assert wrapped == {
        "class_path": "sims.workers.WorkerSim",
        "init_args": {"workers": 2, "timeout_s": 5, "sim": plain},
    }


def test_more_processes_than_environments_are_refused():
    with pytest.raises(ConfigError, match=r"sim.workers=9: rollout.num_envs=8"):
        sim_of("sim.workers=9", "rollout.num_envs=8")


def test_sizes_and_interpolations_are_those_of_the_simulator():
    words = ["recipe=sac_pixels", "sim=reach", "sim.workers=2", "sim.image_size=40"]
    assert to_lightning(compose(words))["model"]["init_args"]["policy"]["init_args"]["image_size"] == 40


def test_arguments_of_a_run_that_is_measured_reach_the_simulator_inside():
    arguments = ["--data.task.sim.level=hard", "--data.task.sim.workers=3", "--data.engine.max_rows=2"]
    config = to_lightning(compose([*WORDS, "sim.workers=2"]))
    assert pass_workers(config, arguments) == ["--data.task.sim.sim.level=hard", *arguments[1:]]
    assert pass_workers(to_lightning(compose(WORDS)), arguments) == arguments
