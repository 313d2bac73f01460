"""Experiments: their sides, what is run, and when a stored result is stale."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from mmrl.core.errors import ConfigError
from mmrl.experiments import runner
from mmrl.experiments.experiment import Baseline, Experiment
from mmrl.experiments.results import format_result, result_file, result_state
from mmrl.experiments.runner import ExperimentRun, RunFailed, list_runs, run_experiments

METRIC = "val/greedy/exact/mean"
EXPERIMENT = Experiment(
    "grpo",
    budget="none",
    metric=METRIC,
    overrides=("data.num_prompts=4",),
    baseline=Baseline("reinforce", ("recipe=reinforce", "optimizer.lr=1e-4")),
)
AFTER = {("method", s): a for s, a in enumerate((0.9, 0.91, 0.92))} | {
    ("baseline", s): a for s, a in enumerate((0.7, 0.72, 0.71))
}


def finish(runs: Path, contents, after) -> list[ExperimentRun]:
    """Write the metrics and receipts of these runs, as ended fits do."""
    written = []
    for run in list_runs(EXPERIMENT, contents, [0, 1, 2], runs):
        if (run.side, run.seed) not in after:
            continue
        run.folder.mkdir(parents=True)
        with (run.folder / "metrics.csv").open("w") as file:
            writer = csv.writer(file)
            writer.writerow(["iterations", METRIC, "val/greedy/exact/n", "rollout/episodes_collected"])
            writer.writerows([[0, 0.3, 200, ""], [1, "", "", 40], [2, after[run.side, run.seed], 200, 40]])
        command = ["-m", "mmrl", "fit", *run.overrides, f"seed={run.seed}", f"run_dir={run.folder}"]
        receipt = {"command": command, "content": run.content, "seconds": 60.0}
        (run.folder / "receipt.json").write_text(json.dumps(receipt))
        written.append(run)
    return written


def test_a_second_call_runs_what_is_missing_and_writes_the_result(tmp_path, monkeypatch):
    """Five of six runs have ended; only the sixth is run."""
    contents = EXPERIMENT.hash_sides()
    rest = dict(AFTER)
    missing = rest.pop(("baseline", 1))
    finish(tmp_path / "runs", contents, rest)
    started: list[ExperimentRun] = []

    def fit(run, command):
        started.extend(finish(tmp_path / "runs", contents, {("baseline", 1): missing}))
        return 60.0

    monkeypatch.setattr(runner.ExperimentRun, "_fit", fit)
    errors = run_experiments([EXPERIMENT], None, 2, tmp_path / "runs", tmp_path / "out")
    assert not errors and [(run.side, run.seed) for run in started] == [("baseline", 1)]
    result = json.loads(result_file("recipe", "grpo", tmp_path / "out").read_text())
    assert result["effect_over_baseline"] == pytest.approx(0.2) and result["verdict"] == "helps"
    assert [row["seed"] for row in result["baseline"]["seeds"]] == [0, 1, 2]
    assert result["curves"]["method"][0] == [[0.0, 0.3], [2.0, 0.9]]
    usage = {"iterations": 2.0, "episodes": 80.0, "seconds": 60.0}
    assert result["usage"] == {"method": usage, "baseline": usage}
    assert result_file("recipe", "grpo", tmp_path / "out").with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert result_state(EXPERIMENT, tmp_path / "out") == "current"
    assert format_result(result).startswith("helps: +0.200 [") and format_result(result).endswith("over reinforce")


def test_a_result_is_stale_when_its_runs_would_differ_today(tmp_path):
    assert result_state(EXPERIMENT, tmp_path) == "missing"
    finish(tmp_path / "runs", EXPERIMENT.hash_sides(), AFTER)
    run_experiments([EXPERIMENT], [0, 1, 2], 2, tmp_path / "runs", tmp_path)
    other, more = replace(EXPERIMENT, overrides=("data.num_prompts=8",)), replace(EXPERIMENT, seeds=5)
    assert result_state(EXPERIMENT, tmp_path) == "current"
    assert result_state(other, tmp_path) == result_state(more, tmp_path) == "stale"


def test_seeds_of_an_unchanged_stored_result_are_kept_and_the_others_are_run(tmp_path, monkeypatch):
    contents = EXPERIMENT.hash_sides()
    two = {(side, seed): after for (side, seed), after in AFTER.items() if seed < 2}
    finish(tmp_path / "two", contents, two)
    run_experiments([EXPERIMENT], [0, 1], 1, tmp_path / "two", tmp_path)
    started: list[tuple[str, int]] = []

    def fit(run, command):
        started.append((run.side, run.seed))
        finish(tmp_path / "runs", contents, {(run.side, run.seed): AFTER[run.side, run.seed]})
        return 60.0

    monkeypatch.setattr(runner.ExperimentRun, "_fit", fit)
    assert not run_experiments([EXPERIMENT], None, 1, tmp_path / "runs", tmp_path, keep_stored=True)
    assert started == [("method", 2), ("baseline", 2)]
    stored = json.loads(result_file("recipe", "grpo", tmp_path).read_text())
    finish(tmp_path / "six", contents, AFTER)
    run_experiments([EXPERIMENT], None, 1, tmp_path / "six", tmp_path / "six")
    assert stored == json.loads(result_file("recipe", "grpo", tmp_path / "six").read_text())
    changed = replace(EXPERIMENT, overrides=("data.num_prompts=8",))
    assert not runner.read_measured_runs(changed, changed.hash_sides(), tmp_path)
    other = replace(EXPERIMENT, metric="val/sampled/exact/mean")
    assert not runner.read_measured_runs(other, contents, tmp_path)


def test_a_failed_run_names_its_log(tmp_path):
    overrides = ("recipe=grpo", "data.num_promts=4", "policy=none")
    run = ExperimentRun("none", "method", 0, overrides, "x", tmp_path / "none" / "method-0")
    with pytest.raises(RunFailed, match=r"method-0\.log"):
        run()
    assert "policy=none" in (tmp_path / "none" / "method-0.log").read_text()


def test_an_error_of_a_seed_is_reported_for_that_seed_alone(tmp_path, monkeypatch):
    contents = EXPERIMENT.hash_sides()

    def fit(run, command):
        if (run.side, run.seed) == ("method", 0):
            raise RunFailed("method-0 failed; see its log")
        finish(tmp_path / "runs", contents, {(run.side, run.seed): 0.9})
        return 60.0

    monkeypatch.setattr(runner.ExperimentRun, "_fit", fit)
    said = {}
    errors = run_experiments(
        [EXPERIMENT],
        None,
        1,
        tmp_path / "runs",
        tmp_path / "out",
        report=lambda run, error: said.update({(run.side, run.seed): error}),
    )
    assert errors == {"grpo": "method-0 failed; see its log"} and len(said) == 6
    assert {key: error for key, error in said.items() if error} == {("method", 0): errors["grpo"]}


def test_a_metric_that_is_not_written_is_an_error_of_its_recipe(tmp_path):
    finish(tmp_path / "runs", EXPERIMENT.hash_sides(), AFTER)
    other = replace(EXPERIMENT, metric="val/greedy/exact/other")
    with pytest.raises(ConfigError, match="val/greedy/exact/other"):
        runner.measure_seed(other, {"rows": [{}], "seconds": 1.0, "seed": 0})
    errors = run_experiments([other], [0], 1, tmp_path / "runs", tmp_path / "out")
    assert "val/greedy/exact/other" in errors["grpo"] and not (tmp_path / "out").exists()
