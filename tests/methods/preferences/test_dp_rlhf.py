"""Private RLHF in rounds: three fits with private gradients on disjoint data, each with the whole budget."""

from pathlib import Path

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.words import build_words
from mmrl.config.compose import compose
from mmrl.experiments.experiment import read_experiment
from tasks.preferences.planted import PlantedPreferences


def compose_fits(*arguments):
    """The configuration of every fit, by its stage."""
    file = read_rounds(["dp_rlhf", *arguments])
    fits = [step for step in list_steps(file) if step.kind == "fit"]
    return {step.stage_name: compose(build_words(file, step, Path("run"))) for step in fits}


def test_every_stage_is_private_on_data_of_its_own():
    """Disjoint data: the budget of all three is the largest one, 4, and not their sum."""
    fits = compose_fits()
    assert list(fits) == ["sft", "reward_model", "ppo"]
    for fit in fits.values():
        assert fit.model._target_.endswith("PrivateLearner") and fit.model.privacy.target_epsilon == 4
        assert fit.data.curriculum._target_.endswith("PoissonSampling")
        assert (fit.data.num_minibatches, fit.data.update_epochs) == (1, 1)
        size = len(PlantedPreferences(count=fit.data.task.count))
        assert size == 16000 and fit.model.privacy.delta < 1 / size
    tasks = [PlantedPreferences(count=400, seed=fit.data.task.seed) for fit in fits.values()]
    pairs = [{task[i].info["chosen"] + task[i].info["rejected"] for i in range(len(task))} for task in tasks]
    assert not (pairs[0] & pairs[1] or pairs[1] & pairs[2] or pairs[0] & pairs[2])


def test_baselines_differ_in_privacy_alone():
    private = compose_fits()
    for name, epsilon in {"no_privacy": None, "epsilon_10": 10, "epsilon_1": 1}.items():
        others = compose_fits(*read_rounds(["dp_rlhf"]).values["baselines"][name])
        for stage, other in others.items():
            assert other.get("model").get("privacy", {}).get("target_epsilon") == epsilon
            assert other.data == private[stage].data, (name, stage)
            assert other.trainer.max_epochs == private[stage].trainer.max_epochs
            assert other.model.optimizer == private[stage].model.optimizer


def test_the_experiments_take_the_same_steps_without_privacy():
    for name in ("dp_sft", "dp_bradley_terry", "dp_ppo"):
        sides = {side: compose(words) for side, words in read_experiment(name).sides().items()}
        assert sides["method"].model.privacy.target_epsilon == 4 and "privacy" not in sides["baseline"].model
        assert sides["method"].data == sides["baseline"].data
        assert sides["method"].trainer.max_epochs == sides["baseline"].trainer.max_epochs
        assert sides["method"].model.optimizer == sides["baseline"].model.optimizer
