"""The shares of an iteration by hand, and a run of the script without servers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "scale"))
from bench_staleness import parse, run, shares


def test_shares_by_hand():
    phases = {"time/iteration": 10.0, "time/sync": 1.0, "time/rollout": 5.0, "time/score": 0.5, "time/generate": 4.0}
    alone = shares(phases)
    assert alone == {"iteration": 10.0, "learner_idle": 0.65, "servers_idle": 0.6, "staleness": 0.0}
    beside = shares(phases | {"time/wait": 2.0, "rollout/staleness": 1.0, "time/generate": 11.0})
    assert beside == {"iteration": 10.0, "learner_idle": 0.2, "servers_idle": 0.0, "staleness": 1.0}


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_run(staleness, tmp_path):
    sizes = ("--prompts", "2", "--group-size", "2", "--max-tokens", "4", "--engine", "local", "--iterations", "1")
    (metrics,) = run(tmp_path / "run", staleness, parse(sizes))
    assert ("time/wait" in metrics) == bool(staleness)
    assert 0 <= shares(metrics)["learner_idle"] <= 1
