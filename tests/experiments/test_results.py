"""The stored results can be formatted, and belong to experiments with the same metric."""

from mmrl.experiments.experiment import read_experiment
from mmrl.experiments.results import FOLDER, format_result, format_table, read_result

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
