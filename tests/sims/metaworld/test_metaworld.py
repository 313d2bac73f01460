"""Meta-World under a Python of its own: states by seed, experts, images, recordings."""

import json

import numpy as np
import pytest

from mmrl.commands.datasets.record import record
from mmrl.core.types import Sim
from mmrl.datasets.lerobot.reader import LeRobotDataset
from mmrl.policies.vla.scale import Scale
from sims.task import SimTask, split_of
from tests.sims.workers.equality import assert_equal, play
from tests.sims.workers.solving import solve

pytest.importorskip("msgpack")
from sims.host.tasks import task_of
from sims.metaworld.sim import MetaWorldSim
from sims.workers.process import SimulatorError
from sims.workers.python import find_python

try:
    find_python(None, MetaWorldSim.environment, MetaWorldSim.make_target)
except ValueError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

TEN = (
    *("reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3"),
    *("button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3"),
)


def held_out(sim):
    return SimTask(sim, split="held_out")


def test_a_benchmark_states_what_its_runs_depend_on():
    sim = MetaWorldSim("MT10", chunk=5, max_steps=150)
    assert isinstance(sim, Sim) and sim.name == "metaworld-MT10"
    sizes = sim.sizes()
    scale = Scale(**sizes.pop("processor")["vectors"]["proprio"])
    assert sizes == {"action_dims": 4, "chunk": 5, "proprio_dims": 39} and len(scale.offset) == 39
    contract = sim.contract()
    assert (contract["mujoco"], contract["metaworld"], contract["max_steps"]) == ("3.3.0", "3.1.1", 150)
    assert contract == json.loads(json.dumps(contract))
    assert {sim.task_of(seed) for seed in range(200)} == set(TEN)
    with pytest.raises(SimulatorError, match=r"sim.task='reach' is none of MT10"):
        MetaWorldSim("reach")
    with pytest.raises(SimulatorError, match=r"set sim.chunk=1, not 5"):
        sim.expert(reset(sim.make(1)))


def reset(env):
    env.reset(seed=[0])
    return env


def test_results_are_functions_of_seeds_and_not_of_processes():
    """Also where environments were other tasks' before, and images are drawn."""
    sims = [MetaWorldSim("MT10", chunk=3, max_steps=9, image_size=16, workers=workers) for workers in (1, 2)]
    assert_equal(*(play(sim, 4, 10) for sim in sims))


def test_a_hidden_goal_and_tasks_of_held_out_states():
    sim = MetaWorldSim("ML10", max_steps=5)
    train, held_out = (
        {SimTask(sim, split=split)[i].info["task"] for i in range(99)} for split in ("train", "held_out")
    )
    assert len(train) == 10 and len(held_out) == 5 and not train & held_out
    assert all(task_of(seed, ["a"], ["b"]) == {"train": "a", "held_out": "b"}[split_of(seed)] for seed in range(9))
    env = sim.make(1)
    seen, _ = env.reset(seed=[2])
    assert not seen["proprio"][0, -3:].any() and seen["proprio"][0, :3].any()
    assert sim.expert(env).shape == (1, 1, 4)
    env.close()


def test_several_tasks_are_demonstrated_in_chunks_from_every_control_step():
    sim = MetaWorldSim("reach-v3+drawer-close-v3", chunk=4, max_steps=9)
    assert {sim.task_of(seed) for seed in range(20)} == {"reach-v3", "drawer-close-v3"}
    seeds = [next(seed for seed in range(0, 99, 2) if sim.task_of(seed) == task) for task in sim.task.split("+")]
    demos = sim.demonstrate(seeds)
    assert [demo[0][0]["instruction"] for demo in demos] == ["reach", "drawer close"]
    for demo in demos:
        chunks = np.stack([chunk for _, chunk in demo])
        assert chunks.shape == (len(demo), 4, 4) and 20 < len(demo) <= 100
        assert np.array_equal(chunks[1:-4, 0], chunks[:-5, 1])  # a step later
        scaled = Scale(**sim.sizes()["processor"]["vectors"]["proprio"]).apply(
            np.stack([raw["proprio"] for raw, _ in demo])
        )
        assert np.abs(scaled).max() < 5


def test_the_expert_solves_reach():
    success, steps = solve(held_out(MetaWorldSim("reach-v3")), 5)
    assert success.all() and steps.max() < 200


@pytest.mark.slow
def test_experts_solve_nine_of_ten_episodes_of_ten_tasks():
    outcomes = [solve(held_out(MetaWorldSim(task)), 10)[0].mean() for task in TEN]
    assert np.mean(outcomes) >= 0.9


def test_recorded_episodes_are_read_back(tmp_path):
    out = tmp_path / "reach"
    record(["sim=metaworld", "sim.task=reach-v3", "sim.image_size=32", "num_episodes=3", f"out={out}"])
    dataset = LeRobotDataset(out)
    assert len(dataset) == 3 and all(dataset.success(i) for i in range(3))
    episode = dataset.read(0)
    assert episode.instruction == "reach" and episode.actions.shape == (dataset.lengths()[0], 4)
    assert episode.observations["proprio"].shape == (dataset.lengths()[0], 39) and "image" in episode.observations
    assert dataset.contract == MetaWorldSim("reach-v3", image_size=32).contract()
