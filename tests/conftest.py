"""What holds for all tests."""

import gc
import os
import shutil
import tempfile

import pytest

COMPOSED = "MMRL_TESTS_COMPOSED"
"""Environment variable: the folder of the configurations that tests have composed."""

gc.disable()  # while modules are imported: nothing of them is garbage


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what the test modules have imported out of garbage collections: each would take a third of a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder in which processes that share the tests find what another has composed."""
    if not hasattr(config, "workerinput"):
        os.environ[COMPOSED] = tempfile.mkdtemp(prefix="mmrl-composed-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[COMPOSED], ignore_errors=True)
