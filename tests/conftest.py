"""What holds for all tests."""

import gc
import os
import shutil
import sys
import tempfile

import pytest

COMPOSED = "MMRL_TESTS_COMPOSED"
"""Environment variable: the folder of the configurations that tests have composed."""
VERDICTS = "MMRL_FIDELITY"
"""Environment variable: the folder of the verdicts on checkpoints, in place of the user's."""

gc.disable()  # while modules are imported: nothing of them is garbage


def pytest_collection_finish(session: pytest.Session) -> None:
    """Share what is parsed, and leave what the test modules have imported out of garbage collections.

    Each collection would take a third of a second.
    """
    if "mmrl.commands.cli" in sys.modules:  # a test module has imported it
        from tests.composed_words import share_options
        from tests.parsed_words import share_parts

        share_options()
        share_parts()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # seldom: tests end before much garbage is theirs
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folders in which processes that share the tests find what another has composed, or measured."""
    if not hasattr(config, "workerinput"):
        os.environ[COMPOSED] = tempfile.mkdtemp(prefix="mmrl-composed-")
        os.environ[VERDICTS] = tempfile.mkdtemp(prefix="mmrl-verdicts-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        for name in (COMPOSED, VERDICTS):
            shutil.rmtree(os.environ[name], ignore_errors=True)
