"""Reading experiments: sides, seeds, and refusals of files that name no experiment."""

import pytest

from mmrl.config.compose import groups
from mmrl.core.errors import ConfigError
from mmrl.experiments import experiment
from mmrl.experiments.experiment import Baseline, Experiment, read_experiment


def build(**keywords) -> Experiment:
    return Experiment("grpo", **{"budget": "none", "metric": "x", **keywords})


def test_the_recipe_of_a_baseline_replaces_that_of_the_method():
    one = build(overrides=["data.num_prompts=4"], baseline=Baseline("r", ["recipe=reinforce", "optimizer.lr=1e-4"]))
    assert one.sides() == {
        "method": ["recipe=grpo", "data.num_prompts=4"],
        "baseline": ["recipe=reinforce", "data.num_prompts=4", "optimizer.lr=1e-4"],
    }
    assert one.sides(with_baseline=False) == {"method": ["recipe=grpo", "data.num_prompts=4"]}
    assert one.hash_sides()["method"] != one.hash_sides()["baseline"]


def test_seeds_are_a_number_or_a_list():
    assert build().seed_list == [0, 1, 2] and build(seeds=[3, 5]).seed_list == [3, 5]


def test_a_side_that_is_not_evaluated_at_its_end_is_refused():
    words = ["recipe=grpo", "trainer.max_epochs=16", "trainer.check_val_every_n_epoch=15"]
    one = build(baseline=Baseline("GRPO", words))
    with pytest.raises(
        ConfigError, match="the baseline has 16 iterations and is evaluated every 15, so not at its end"
    ):
        one.check_evaluation_interval()
    one.check_evaluation_interval(with_baseline=False)


@pytest.mark.parametrize(
    ("metric", "words", "message"),
    [
        ("val/sampled/exact/mean", (), "the method is not measured .* evaluation.sampling has greedy, and no sampled"),
        ("val/greedy/returns/success", (), "evaluation.evaluators has exact, and no returns"),
        ("val/greedy/exact/mean", ("data.evaluation=null",), "evaluation.sampling has nothing, and no greedy"),
    ],
)
def test_a_metric_that_no_evaluation_measures_is_refused(metric, words, message):
    with pytest.raises(ConfigError, match=message):
        build(metric=metric, overrides=words).check_evaluation_interval()
    build(metric="val/greedy/exact/mean").check_evaluation_interval()
    build(metric="train/loss").check_evaluation_interval()


def test_an_experiment_takes_nothing_over_from_the_recipe_below():
    assert read_experiment("grpo").target and not read_experiment("mopps").target  # mopps builds on grpo
    assert read_experiment("reinforce") is None
    with pytest.raises(ConfigError, match="no such recipe"):
        read_experiment("none")


def test_every_experiment_is_that_of_a_recipe_and_is_no_config_group():
    names = {file.stem for file in experiment.FOLDER.rglob("*.yaml")}
    assert names <= set(groups()["recipe"]) and "experiment" not in groups()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{budget: b, metric: m, column: c}", "unexpected keyword argument 'column'"),
        ("{metric: m}", "missing 1 required positional argument: 'budget'"),
        ("{budget: b, metric: m, threshold: 1}", "threshold and cost belong together"),
        ("{budget: b, metric: m, target: {after: 1}}", r"unknown keys \['after'\]"),
    ],
)
def test_a_file_with_wrong_keys_is_refused_by_its_name(text, message, tmp_path, monkeypatch):
    (tmp_path / "grpo.yaml").write_text(text)
    monkeypatch.setattr(experiment, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=f"conf/experiment/grpo.yaml: .*{message}"):
        read_experiment("grpo")
