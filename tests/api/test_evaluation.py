import json

import pytest

import mmrl
from tests.api.test_training import small


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return mmrl.fit(*small(), run_dir=tmp_path_factory.mktemp("run"))


def test_the_metrics_are_those_of_the_command_with_intervals(run):
    metrics = mmrl.evaluate(run, count=6)
    assert metrics == json.loads((run.folder / "evaluation.json").read_text())["metrics"]["last"]
    exact = metrics["greedy"]["exact"]
    assert exact["n"] == 6 and 0 <= exact["lower"] <= exact["mean"] <= exact["upper"] <= 1


def test_a_folder_another_checkpoint_and_several_samples(run):
    metrics = mmrl.evaluate(str(run.folder), "engine.max_rows=2", checkpoint="start", count=3, num_samples=2)
    assert list(metrics) == ["sample"] and {"pass@1", "pass@2"} <= set(metrics["sample"]["exact_pass"])
    written = json.loads((run.folder / "evaluation.json").read_text())
    assert written["checkpoints"]["start"]["optimiser_steps"] == 0 and written["count"] == 3


def test_what_cannot_be_measured_is_refused(run, tmp_path):
    with pytest.raises(mmrl.ConfigError, match="count=0: must be a whole number"):
        run.evaluate(count=0)
    with pytest.raises(mmrl.ConfigError, match="neither the folder of a run"):
        mmrl.evaluate(tmp_path)
    with pytest.raises(mmrl.ConfigError, match=r"compare=.*start\.ckpt: mmrl\.evaluate returns the metrics of one"):
        mmrl.evaluate(run, "compare=start")


def test_a_folder_without_a_run_is_none(tmp_path):
    with pytest.raises(mmrl.ConfigError, match="not the folder of a run"):
        mmrl.Run(tmp_path)
