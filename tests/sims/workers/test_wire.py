"""Messages, spaces and shared arrays between processes, and what the other side may import."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tests.sims.workers.equality import assert_equal

pytest.importorskip("msgpack")
from sims.host.shared import map_arrays, plan_layout, write_rows
from sims.host.spaces import build_space, describe_space
from sims.host.wire import pack, unpack
from sims.workers.merge import join_reports

MIXED = np.empty(2, object)
MIXED[0], MIXED[1] = None, np.arange(3)


def test_a_message_comes_back_as_it_was():
    sent = {
        "plain": [None, True, 2**63, -(2**100), 0.1, float("inf"), "ä", b"\x00"],
        "tuple": (1, (2.5, "x")),
        "arrays": [np.zeros((0, 3), np.float32), np.arange(6, dtype=np.uint8).reshape(2, 3).T, np.array(True)],
        "objects": MIXED,
        "numbers": [np.float32(0.1), np.int64(-3), np.bool_(True)],
        7: "a number as a key",
    }
    assert_equal(unpack(pack(sent)), sent)
    assert_equal(unpack(pack(torch.ones(2))), np.ones(2, np.float32))
    with pytest.raises(TypeError, match="cannot hold"):
        pack({"what": object()})


SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        "instruction": spaces.Text(12, min_length=0, charset="abc"),
        "number": spaces.Discrete(4, start=-1),
        "felt": spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, 2.0]), dtype=np.float64),
        "many": spaces.MultiDiscrete([2, 3]),
        "bits": spaces.MultiBinary(3),
    }
)


def test_spaces_come_back_equal_and_others_are_refused():
    assert build_space(unpack(pack(describe_space(SPACE)))) == SPACE
    with pytest.raises(TypeError, match="cannot have the space"):
        describe_space(spaces.Sequence(spaces.Discrete(2)))


def test_rows_are_written_to_shared_memory_and_text_is_sent(tmp_path):
    layout, size = plan_layout(SPACE, 4)
    assert {name for name, *_ in layout} == set(SPACE.spaces) - {"instruction"}
    with open(tmp_path / "memory", "w+b") as file:
        file.truncate(size)
        here, there = (map_arrays(file.fileno(), layout, size) for _ in range(2))
    seen = {"image": np.full((2, 2, 2, 3), 9, np.uint8), "felt": np.ones((2, 2)), "instruction": ["a", "b"]}
    assert write_rows(there, 1, seen) == {"instruction": ["a", "b"]}
    assert here["image"][:, 0, 0, 0].tolist() == [0, 9, 9, 0] and here["felt"].sum() == 4
    assert all(offset % 64 == 0 for *_, offset in layout)


def test_reports_of_parts_are_joined_as_gymnasium_fills_them():
    parts = [
        {
            "scores": {"success": np.array([1.0]), "_success": np.array([True])},
            "task": ["a"],
            "error": np.array([False]),
        },
        {"error": np.array(["died", None], object), "task": ["b", "c"]},
    ]
    joined = join_reports(parts, [slice(0, 1), slice(1, 3)], 3)
    assert joined["scores"]["success"].tolist() == [1, 0, 0] and joined["scores"]["_success"].dtype == bool
    assert joined["error"].tolist() == [False, "died", None] and joined["task"] == ["a", "b", "c"]


def test_the_other_side_imports_numpy_gymnasium_and_msgpack_alone():
    allowed = {*sys.stdlib_module_names, "numpy", "gymnasium", "msgpack"}
    for file in (Path(__file__).parents[3] / "sims" / "host").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert all(name.split(".")[0] in allowed or name.startswith("sims.host.") for name in names), (file, names)


def test_processes_of_mmrls_simulators_import_torch_when_they_use_it():
    """Importing it takes most of the time in which a process starts, and of its memory."""
    pytest.importorskip("mujoco")
    modules = "sims.host.worker, sims.point.sim, sims.gym.vector, sims.tabletop.sims"
    used = "env = sims.point.sim.PointSim().make(1); env.reset(seed=0)"
    code = f"import sys, {modules}; {used}; print('torch' in sys.modules, env.state_dict()['at'].dtype)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False torch.float64\n"
