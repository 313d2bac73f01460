"""Both sides of every experiment can be built, so that none ends before its first iteration."""

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, groups, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import MissingPackageError
from mmrl.experiments.experiment import read_experiment

RECIPES = [recipe for recipe in groups()["recipe"] if read_experiment(recipe)]


def build(words, folder):
    """Build data and learner of a run; its parts are tried on the first problem, as at the start of `mmrl fit`."""
    CLI(to_lightning(compose([*words, f"run_dir={folder}"])), build=False).build()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_both_sides_of_an_experiment_are_built(recipe, tmp_path):
    for side, words in read_experiment(recipe).sides().items():
        try:
            build(words, tmp_path / side)
        except ConfigError as error:
            weights_are_missing = "is not installed" in str(error)
            if not isinstance(error, MissingPackageError) and not weights_are_missing:
                raise
            pytest.skip(str(error))
