"""OGBench, the SO-101 arm and PushT under a Python of their own: states by seed, experts, goals, recordings."""

import json

import numpy as np
import pytest

from mmrl.commands.datasets.record import record
from mmrl.core.types import Sim
from mmrl.datasets.lerobot.reader import LeRobotDataset
from sims.task import SimTask
from tests.sims.workers.equality import assert_equal, play
from tests.sims.workers.solving import solve

pytest.importorskip("msgpack")
from sims.ogbench.sim import OGBenchSim
from sims.ogbench.sizes import SCENES
from sims.pusht.sim import PushTSim
from sims.so101.sim import SO101Sim
from sims.workers.process import SimulatorError
from sims.workers.python import find_python

try:
    find_python(None, OGBenchSim.environment, OGBenchSim.make_target)
except ValueError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

MAKERS = {
    "cube-double": lambda **options: OGBenchSim("cube-double", **options),
    "scene": lambda **options: OGBenchSim("scene", **options),
    "puzzle-3x3": lambda **options: OGBenchSim("puzzle-3x3", **options),
    "so101": SO101Sim,
    "pusht": PushTSim,
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def test_the_expert_solves_held_out_states_and_none_is_solved_at_the_start(make):
    sim = make()
    task, env = SimTask(sim, split="held_out"), sim.make(6)
    seen, _ = env.reset(seed=[task[i].info["seed"] for i in range(6)])
    env.close()
    assert seen["proprio"].shape == (6, sim.sizes()["proprio_dims"]) and np.abs(seen["proprio"]).max() < 10
    success, steps = solve(task, 6)
    assert success.all() and steps.min() > 2


def test_results_are_functions_of_seeds_and_not_of_processes(make):
    """Also where an environment had another episode before."""
    assert_equal(*(play(make(chunk=3, max_steps=9, image_size=16, workers=workers), 2, 8) for workers in (1, 2)))


def test_a_simulator_states_what_its_runs_depend_on(make):
    sim = make(chunk=5, max_steps=150)
    assert isinstance(sim, Sim) and sim.sizes()["chunk"] == 5
    contract = sim.contract()
    assert contract == json.loads(json.dumps(contract)) and contract["max_steps"] == 150
    assert ("pymunk" if make is PushTSim else "mujoco") in contract
    env = sim.make(1)
    env.reset(seed=[0])
    with pytest.raises(SimulatorError, match=r"set sim.chunk=1, not 5"):
        sim.expert(env)
    env.close()
    with pytest.raises(SimulatorError, match=r"sim.max_steps must be at least 1"):
        make(max_steps=0).make(1)


def test_a_scene_that_does_not_exist_is_refused_by_name():
    with pytest.raises(SimulatorError, match=r"sim.scene='kitchen' is none of cube-single"):
        OGBenchSim("kitchen")


def test_the_goal_is_observed():
    """The target of the cube is the last five numbers but the unit vector before them: place, cosine and sine."""
    env = OGBenchSim("cube-single").make(2)
    seen, _ = env.reset(seed=[0, 2])
    which, goal = seen["proprio"][:, -6], seen["proprio"][:, -5:]
    env.close()
    assert (which == 1).all() and not np.array_equal(goal[0], goal[1])
    assert np.allclose(goal[:, 2], 0.2) and np.allclose(np.hypot(goal[:, 3], goal[:, 4]), 1)  # 2 cm above the table


def test_a_scene_poses_its_four_tasks_and_unlocks_what_is_to_be_moved():
    sim = OGBenchSim("scene")
    seeds = {sim.task_of(seed): seed for seed in range(40)}
    assert sorted(seeds) == sorted(SCENES["scene"].tasks)
    env = sim.make(4)
    seen, infos = env.reset(seed=[seeds[task] for task in SCENES["scene"].tasks])
    env.close()
    assert list(infos["task"]) == list(SCENES["scene"].tasks)
    assert [text.split()[-1] for text in seen["instruction"]] == ["target", "button", "drawer", "window"]
    states = seen["proprio"][:, 28:36].reshape(4, 2, 4)[..., :2]  # after arm and cube: state, place, speed of buttons
    assert states[2, 0].tolist() == [0, 1] and states[3, 1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "name, instruction",
    [("so101", "pick the cube up and put it on the goal"), ("pusht", "push the block onto the goal")],
)
def test_recorded_episodes_are_read_back(name, instruction, tmp_path):
    record([f"sim={name}", "sim.image_size=32", "num_episodes=2", f"out={tmp_path / name}"])
    dataset, sim = LeRobotDataset(tmp_path / name), MAKERS[name](image_size=32)
    assert len(dataset) == 2 and all(dataset.success(i) for i in range(2))
    episode = dataset.read(0)
    assert episode.instruction == instruction
    assert episode.observations["proprio"].shape[1] == sim.sizes()["proprio_dims"] == {"so101": 20, "pusht": 6}[name]
    assert dataset.contract == sim.contract()


@pytest.mark.parametrize("name, action_dims", [("so101", 4), ("pusht", 2)])
def test_demonstrations_are_chunks_from_every_control_step(name, action_dims):
    (demo,) = MAKERS[name](chunk=4).demonstrate([0])
    chunks = np.stack([chunk for _, chunk in demo])
    assert chunks.shape == (len(demo), 4, action_dims) and len(demo) > 20
    assert np.array_equal(chunks[1:-4, 0], chunks[:-5, 1])
