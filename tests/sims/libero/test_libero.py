"""LIBERO under a Python of its own: stored states, the split, actions, perturbations, the expert, recordings."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sims
from mmrl.commands.datasets.record import record
from mmrl.commands.evaluate import evaluate
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Sim
from mmrl.datasets.lerobot.reader import LeRobotDataset
from sims.states import StoredStateTask
from tests.policies.vla.checkpoints.openvla_checkpoint import openvla
from tests.sims.workers.equality import assert_equal, play
from tests.sims.workers.solving import solve

pytest.importorskip("msgpack")
from sims.libero.sim import LiberoSim
from sims.libero.sizes import sizes
from sims.workers.process import SimulatorError
from sims.workers.python import find_python

try:
    PYTHON = find_python(None, LiberoSim.environment, LiberoSim.make_target)
except ValueError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

MILK = ("milk",)


def run_there(code):
    """Run a program under LIBERO's Python; returns what it prints as JSON."""
    boot = f"import sys; sys.path.insert(0, {str(Path(sims.__path__[0]).parent)!r})\nimport json\n"
    done = subprocess.run([PYTHON, "-c", boot + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def held_out(sim):
    return StoredStateTask(sim, split="held_out")


def test_a_suite_states_what_its_runs_depend_on():
    sim = LiberoSim("object", chunk=5)
    assert isinstance(sim, Sim) and sim.name == "libero-object"
    assert sim.sizes() == sizes(5) and sim._statement()["sizes"] == sizes(5)
    assert [sizes(5)[name] for name in ("action_dims", "chunk", "proprio_dims")] == [7, 5, 8]
    contract = sim.contract()
    assert (contract["max_steps"], contract["settle_steps"], contract["robosuite"]) == (280, 10, "1.4.0")
    assert contract == json.loads(json.dumps(contract))
    assert contract["states"] != LiberoSim("object", held_out_states=11).contract()["states"]
    limits = {suite: LiberoSim(suite, tasks=(0,)).contract()["max_steps"] for suite in ("spatial", "goal", "10", "90")}
    assert limits == {"spatial": 220, "goal": 300, "10": 520, "90": 400}
    for options, error in (
        ({"suite": "kitchen"}, "sim.suite='kitchen' is none of object"),
        ({"tasks": ("pick",)}, "names 10 tasks"),
        ({"suite": "90", "perturbation": "object"}, "no variants of sim.suite=90"),
        ({"held_out_states": 51}, "50 stored states, so 0 to 50"),
        ({"renderer": "vulkan"}, "sim.renderer: 'vulkan' is none of ray"),
    ):
        with pytest.raises(SimulatorError, match=error):
            LiberoSim(**options)


def test_training_and_held_out_states_are_disjoint_and_each_is_posed_once():
    train, held_out = (StoredStateTask(LiberoSim("object"), split=split) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (400, 100)
    assert len({held_out[i].info["task"] for i in range(10)}) == 10
    env = LiberoSim("object", settle_steps=0, tasks=MILK).make(2)
    _, infos = env.reset(seed=[0, 1])
    assert infos["state"].tolist() == [0, 40]
    env.close()
    assert len(StoredStateTask(LiberoSim("object", held_out_states=50), split="held_out")) == 500


def test_the_state_after_a_reset_is_that_of_the_file():
    """Also where another episode of the task goes on in the same simulation."""
    differences = run_there("""
import numpy as np
from sims.libero.guest import Libero
world = Libero("object", tasks=["milk"], settle_steps=0)
one, two = world.make_env(), world.make_env()
out = []
for seed in (1, 3, 4):
    one.reset(seed=seed)
    number = one.world.states["held_out" if seed & 1 else "train"][seed >> 1][1]
    out.append(float(np.abs(one.episode.flat() - one.episode.scene.states[number]).max()))
    two.reset(seed=6)
    two.step(np.ones((1, 7)))
    out.append(float(np.abs(one.episode.flat() - one.episode.scene.states[number]).max()))
print(json.dumps(out))
""")
    assert max(differences) < 1e-6


def test_states_are_those_of_the_packages_own_control_steps():
    """To the bit, also with an object in the hand; the package computes the positions of a step three times."""
    equal, lifted = run_there("""
import numpy as np
from sims.libero.guest import Libero
world = Libero("object", tasks=["milk"])
env = world.make_env()
actions, states, heights = [], {}, []
for package in (False, True):
    env.reset(seed=0)
    scene, states[package] = env.episode.scene.env, []
    if package:
        scene.step = super(type(scene), scene).step
    for i in range(80):
        if not package:
            actions.append(world.expert(env))
            heights.append(float(env.episode.scene.data.xpos[scene.obj_body_id[env.expert.object]][2]))
        env.step(actions[i])
        states[package].append(env.episode.flat())
print(json.dumps([bool(np.array_equal(states[False], states[True])), heights[-1] - heights[0]]))
""")
    assert equal and lifted > 0.02


def test_results_are_functions_of_seeds_and_not_of_processes():
    sims_of = [LiberoSim(tasks=(0, 1), chunk=2, max_steps=4, image_size=8, workers=workers) for workers in (1, 2)]
    assert_equal(*(play(sim, 3, 5) for sim in sims_of))


def test_the_gripper_closes_at_plus_one():
    env = LiberoSim(tasks=MILK).make(2)
    env.reset(seed=[0, 0])
    action = np.zeros((2, 1, 7), np.float32)
    action[:, 0, 6] = 1, -1
    for _ in range(12):
        seen, *_ = env.step(action)
    widths = seen["proprio"][:, 6] - seen["proprio"][:, 7]
    env.close()
    assert widths[0] < 0.01 and widths[1] > 0.07


def test_the_hand_moves_along_the_axes_of_the_world():
    env = LiberoSim(tasks=MILK).make(3)
    before, _ = env.reset(seed=[0, 0, 0])
    action = np.zeros((3, 1, 7), np.float32)
    action[np.arange(3), 0, np.arange(3)] = 0.5
    for _ in range(8):
        seen, *_ = env.step(action)
    env.close()
    moved = seen["proprio"][:, :3] - before["proprio"][:, :3]
    assert (np.diag(moved) > 0.03).all() and np.abs(moved - np.diag(np.diag(moved))).max() < 0.02


def test_two_cameras_and_their_orientations():
    images = {}
    for orientation in ("upright", "robosuite", "rotated"):
        sim = LiberoSim(tasks=MILK, image_size=32, cameras=("agent", "wrist"), orientation=orientation)
        env = sim.make(1)
        images[orientation], _ = env.reset(seed=[0])
        env.close()
    upright = images["upright"]
    assert upright["image"].shape == upright["image_2"].shape == (1, 32, 32, 3)
    assert upright["image"].std() > 10 and (upright["image"] != upright["image_2"]).any()
    for name in ("image", "image_2"):
        assert (images["robosuite"][name] == upright[name][:, ::-1]).all()
        assert (images["rotated"][name] == images["robosuite"][name][:, ::-1, ::-1]).all()


def test_perturbations_are_of_held_out_states_alone():
    sentences = {}
    for perturbation in ("none", "language", "position", "object", "task"):
        sim = LiberoSim(tasks=(7,), perturbation=perturbation)
        train, held_out = (StoredStateTask(sim, split=split)[0].info for split in ("train", "held_out"))
        assert not train["task"].endswith(perturbation) and len(StoredStateTask(sim)) == 40
        assert perturbation == "none" or held_out["task"] == f"{train['task']}+{perturbation}"
        env = sim.make(2)
        seen, _ = env.reset(seed=[train["seed"], held_out["seed"]])
        sentences[perturbation] = seen["instruction"]
        env.close()
    assert {pair[0] for pair in sentences.values()} == {"pick up the milk and place it in the basket"}
    assert sentences["none"][0] == sentences["none"][1] == sentences["position"][1]
    assert sentences["language"][1] != sentences["none"][1] and sentences["task"][1] != sentences["none"][1]


@pytest.mark.parametrize("suite", ["spatial", "goal", "10", "90"])
def test_every_suite_plays(suite):
    env = LiberoSim(suite, tasks=(0, 1)).make(2)
    seen, _ = env.reset(seed=[1, 3])
    assert len(set(seen["instruction"])) == 2
    _, _, terminated, truncated, infos = env.step(np.zeros((2, 1, 7), np.float32))
    env.close()
    assert not terminated.any() and not truncated.any() and (infos["executed"] == 1).all()


def test_the_expert_solves_milk_and_refuses_other_goals():
    assert solve(held_out(LiberoSim("object", tasks=MILK)), 3)[0].all()
    sim = LiberoSim("goal", tasks=("open_the_middle_drawer",))
    env = sim.make(1)
    env.reset(seed=[0])
    with pytest.raises(SimulatorError, match="puts one object into or onto another"):
        sim.expert(env)
    env.close()


def test_demonstrations_have_a_chunk_for_every_control_step_and_scaled_states():
    sim = LiberoSim("object", tasks=MILK, chunk=10, max_steps=20, image_size=16)  # the expert takes more steps
    seeds = [StoredStateTask(sim)[i].info["seed"] for i in range(2)]
    for demo in sim.demonstrate(seeds):
        assert 60 < len(demo) < 280
        chunks = np.stack([chunk for _, chunk in demo])
        assert chunks.shape[1:] == (10, 7) and (chunks[1:, :-1] == chunks[:-1, 1:])[:-9].all()
        assert demo[0][0]["image"].shape == (16, 16, 3)
        scale = sizes(10)["processor"]["vectors"]["proprio"]
        states = (np.stack([raw["proprio"] for raw, _ in demo]) - scale["offset"]) / scale["width"]
        assert (np.abs(states) < 2.5).all() and (np.abs(states[:, [0, 1, 2, 6, 7]]).max(axis=0) > 0.5).all()


def test_a_configuration_takes_sizes_and_states_from_the_simulator():
    words = ["recipe=flow_bc", "sim=libero", "sim.tasks=[milk, 0]", "sim.chunk=8"]
    config = to_lightning(compose(words))
    policy, task = config["model"]["init_args"]["policy"]["init_args"], config["data"]["init_args"]["task"]
    assert (policy["action_dims"], policy["chunk"], policy["proprio_dims"]) == (7, 8, 8)
    assert task["class_path"] == "sims.states.StoredStateTask"
    assert task["init_args"]["sim"]["init_args"]["tasks"] == ["milk", 0]


@pytest.mark.slow
def test_the_expert_solves_eight_of_ten_held_out_states_of_ten_tasks():
    assert solve(held_out(LiberoSim("object")), 30)[0].mean() >= 0.8


def test_recorded_episodes_are_read_back(tmp_path):
    out = tmp_path / "milk"
    record(["sim=libero", "sim.tasks=[milk]", "sim.image_size=32", "num_episodes=2", f"out={out}"])
    dataset = LeRobotDataset(out)
    assert len(dataset) == 2 and all(dataset.success(i) for i in range(2))
    episode = dataset.read(0)
    assert episode.instruction == "pick up the milk and place it in the basket"
    assert episode.actions.shape == (dataset.lengths()[0], 7) and set(episode.actions[:, 6]) == {-1.0, 1.0}
    assert episode.observations["proprio"].shape == (dataset.lengths()[0], 8) and "image" in episode.observations
    assert dataset.contract == LiberoSim("object", tasks=MILK, image_size=32).contract()


def test_the_readmes_command_for_a_published_checkpoint_runs(tmp_path, monkeypatch):
    """With a tiny checkpoint of the same layout, by ray casting, for a few control steps."""
    text = (Path(sims.__path__[0]) / "libero" / "README.md").read_text()
    command = re.search(r"mmrl evaluate (sim=libero sim\.image_size=224 .*?)```", text, re.S)[1]
    words = shlex.split(command.replace("\\\n", " "))
    scaled = {"q01": [-1.0] * 7, "q99": [3.0] * 6 + [1.0], "mask": [True] * 6 + [False]}
    folder = openvla(tmp_path / "made", norm_stats={"libero_object": {"action": scaled}})
    here = {"sim.renderer": "ray", "policy.path": f"'{folder}'", "sim.image_size": "16"}
    words = [f"{name}={here.get(name, value)}" for name, value in (word.split("=", 1) for word in words)]
    found = evaluate([*words, "sim.tasks=[milk]", "sim.max_steps=2", "count=1", f"run_dir={tmp_path / 'run'}"])
    assert found["count"] == 1 and "policy" in found["metrics"]
