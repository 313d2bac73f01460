"""The stored results can be formatted, and belong to experiments with the same metric."""

from mmrl.experiments.experiment import read_experiment
from mmrl.experiments.results import FOLDER, format_result, format_table, read_result, with_hashes, write_json

RECIPES = sorted(file.stem for file in FOLDER.glob("*.json"))


def test_every_stored_result_has_a_row_and_belongs_to_its_experiment():
    assert len(RECIPES) >= 30 and len(format_table().splitlines()) == len(RECIPES)
    for recipe in RECIPES:
        result, experiment = read_result(recipe), read_experiment(recipe)
        assert format_result(result).startswith(result["verdict"])
        assert (result["metric"], result["comparison"]) == (experiment.metric, experiment.comparison)
        assert result["target"] == experiment.target and result["budget"] == experiment.budget
        name = experiment.baseline.name if experiment.baseline else "the start"
        assert (result["baseline"] if isinstance(result["baseline"], str) else result["baseline"]["name"]) == name


def test_new_hashes_leave_a_stored_result_as_it_is(tmp_path):
    result = read_result("grpo")
    assert write_json(result, tmp_path).read_text() == (FOLDER / "grpo.json").read_text()
    once = with_hashes({"content": {"method": "a"}, "metric": "m"}, {"method": "b"})
    twice = with_hashes(once, {"method": "c"})
    assert list(twice.items()) == [("content", {"method": "c"}), ("measured_content", {"method": "a"}), ("metric", "m")]
