"""LeRobot, where it is installed: `pip install --no-deps --target FOLDER lerobot` and FOLDER on PYTHONPATH."""

import sys
import types

import pytest


@pytest.fixture
def lerobot(monkeypatch):
    """The package, without the imports of all its policies, of which some do not load everywhere."""
    package = pytest.importorskip("lerobot")
    policies = types.ModuleType("lerobot.policies")
    policies.__path__ = [f"{package.__path__[0]}/policies"]
    monkeypatch.setitem(sys.modules, "lerobot.policies", policies)
    return package
