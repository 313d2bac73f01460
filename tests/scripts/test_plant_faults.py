"""Faults that are planted in a method: its tests notice them, and do not without the assertion that pins them."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from faults.functions import replace_functions  # noqa: E402
from faults.planting import list_faults  # noqa: E402

SOURCE = """
def loss(x, old, mask, n):
    if n < 1:
        raise ValueError(f"{n + 1}")
    y = -(x - old.detach()) ** 2
    return where(mask, y.clamp(0, 1), 0).sum() / (
        n - 1)
"""
MASK_FAULT = "SignedAdvantage.__call__: batch['action_mask'] -> batch['action_mask'] | True"

PROCESS_TEST = """
import os
import torch
from mmrl.core.batch import Batch
from mmrl.methods.losses import nsr
PROCESS = os.getpid()
def test_process():
    nsr.SignedAdvantage(0.1, 1.0)(Batch(action_mask=torch.ones(2, 2).bool(), episode_reward=torch.ones(2)), None)
    assert os.getpid() == PROCESS
"""


def test_faults_of_a_function():
    faults = list_faults(ast.parse(SOURCE))
    changes = {fault.change for fault in faults}
    assert {(fault.line, fault.statement) for fault in faults} == {(5, 5), (6, 6), (7, 6)}
    assert changes == {
        "-(x - old.detach()) ** 2 -> without gradient",
        "-(x - old.detach()) ** 2 -> (x - old.detach()) ** 2",
        "(x - old.detach()) ** 2 -> (x - old.detach()) ** (2 + 1)",
        "x - old.detach() -> x + old.detach()",
        "old.detach() -> old",
        "where(mask, y.clamp(0, 1), 0).sum() / (n - 1) -> where(mask, y.clamp(0, 1), 0).sum() * (n - 1)",
        "where(mask, y.clamp(0, 1), 0).sum() -> where(mask, y.clamp(0, 1), 0).mean()",
        "where(mask, y.clamp(0, 1), 0) -> where(mask, 0, y.clamp(0, 1))",
        "mask -> mask | True",
        "y.clamp(0, 1) -> y.clamp(max=1)",
        "y.clamp(0, 1) -> y.clamp(min=0)",
        "n - 1 -> n + 1",
    }


@pytest.mark.parametrize("draw", ["rng.random()", "torch.rand_like(x)", "rng.uniform().to(x)"])
def test_a_bound_of_a_uniform_draw_is_no_fault(draw):
    """A draw equals the bound with probability 2^-24 or less; a count of draws is compared as any number is."""
    tree = ast.parse(f"def keep(rng, p):\n    return {draw} < p, count({draw}) < p")
    assert [fault.change for fault in list_faults(tree)] == [f"count({draw}) < p -> count({draw}) <= p"]


def test_the_range_of_a_seed_is_no_fault():
    tree = ast.parse("def draw(seed, n):\n    return rng(seed % 2**63), n % 2**n")
    assert [fault.change for fault in list_faults(tree)] == ["2 ** n -> 2 ** (n + 1)"]


def test_a_fault_can_leave_out_the_only_use_of_a_closure():
    source = "class A:\n    def f(self): return {1}\nclass B(A):\n    def f(self): return super().f() | {2}\n"
    module = ModuleType("planted")
    exec(compile(source, "planted.py", "exec"), vars(module))
    child = module.B()
    assert child.f() == {1, 2}
    replace_functions(module, compile(source.replace("super().f() | ", ""), "planted.py", "exec"))
    assert child.f() == {2}


@pytest.fixture(scope="module")
def weakened(tmp_path_factory):
    """NSR's test without the assertion that choices outside the mask have no advantage."""
    text = (ROOT / "tests" / "methods" / "losses" / "test_nsr.py").read_text()
    assert text.count("    assert (out[:, 1] == 0).all()\n") == 1
    path = tmp_path_factory.mktemp("weakened") / "test_nsr.py"
    path.write_text(text.replace("    assert (out[:, 1] == 0).all()\n", ""))
    return path


def plant(*words):
    command = [quick_python(), str(ROOT / "scripts" / "plant_faults.py"), *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_its_tests_notice_every_fault_of_a_method():
    done = plant("losses/nsr")
    assert done.returncode == 0, done.stderr
    assert MASK_FAULT not in done.stdout and done.stdout.splitlines()[-1].split() == ["all", "5", "of", "5:", "100.0%"]


def test_without_the_assertion_the_fault_survives(weakened):
    done = plant("losses/nsr", "--tests", weakened)
    assert MASK_FAULT in done.stdout and done.stdout.splitlines()[-1].split() == ["all", "4", "of", "5:", "80.0%"]
    assert done.returncode == 1


def test_a_test_that_fails_in_a_forked_process_is_left_out(tmp_path, weakened):
    """It calls the method, so it would notice every fault; the other file's count stands."""
    path = tmp_path / "test_process.py"
    path.write_text(PROCESS_TEST)
    done = plant("losses/nsr", "--tests", weakened, path)
    assert "test_process fails in a forked process without a fault; it is left out" in done.stderr
    assert done.stdout.splitlines()[-1].split() == ["all", "4", "of", "5:", "80.0%"]


def test_a_name_without_a_method_is_refused():
    done = plant("losses/nothing")
    assert done.returncode != 0 and "losses/nothing: no theme and no method of" in done.stderr
