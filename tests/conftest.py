"""What holds for all tests."""

import gc

import pytest

gc.disable()  # while modules are imported: nothing of them is garbage


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what the test modules have imported out of garbage collections: each would take a third of a second."""
    gc.collect()
    gc.freeze()
    gc.enable()
