"""The stored results can be formatted, and belong to experiments with the same metric."""

from dataclasses import replace

from mmrl.experiments.effect import describe_verdict
from mmrl.experiments.experiment import Experiment, read_experiment
from mmrl.experiments.results import (
    FOLDER,
    format_result,
    format_table,
    read_result,
    result_file,
    result_state,
    with_hashes,
    write_json,
)

RECIPES = sorted(file.stem for file in (FOLDER / "recipes").rglob("*.json"))


def test_every_stored_result_has_a_row_and_belongs_to_its_experiment():
    assert len(RECIPES) >= 30 and len(format_table().splitlines()) == len(RECIPES)
    for recipe in RECIPES:
        result, experiment = read_result(recipe), read_experiment(recipe)
        assert format_result(result).startswith(describe_verdict(result))
        assert (result["metric"], result["comparison"]) == (experiment.metric, experiment.comparison)
        assert result["target"] == experiment.target and result["budget"] == experiment.budget
        name = experiment.baseline.name if experiment.baseline else "the start"
        assert (result["baseline"] if isinstance(result["baseline"], str) else result["baseline"]["name"]) == name


def test_a_result_of_another_comparison_or_of_other_seeds_is_stale(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "hash_sides", lambda self: read_result("grpo")["content"])
    experiment = read_experiment("grpo")
    write_json(read_result("grpo"), tmp_path)
    assert result_state(experiment, tmp_path) == "current"
    assert result_state(replace(experiment, metric="val/other/mean"), tmp_path) == "stale"
    assert result_state(replace(experiment, seeds=[97, 98, 99]), tmp_path) == "stale"


def test_new_hashes_leave_a_stored_result_as_it_is(tmp_path):
    result = read_result("grpo")
    assert write_json(result, tmp_path).read_text() == result_file("recipe", "grpo").read_text()
    once = with_hashes({"content": {"method": "a"}, "metric": "m"}, {"method": "b"})
    twice = with_hashes(once, {"method": "c"})
    assert list(twice.items()) == [("content", {"method": "c"}), ("measured_content", {"method": "a"}), ("metric", "m")]
