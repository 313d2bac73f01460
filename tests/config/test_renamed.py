"""Names of earlier versions are refused with the present one, and the table names only what is there."""

import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from mmrl.commands.catalogue.listing import find_group
from mmrl.commands.datasets.record import record
from mmrl.commands.evaluation import arguments as evaluation_arguments
from mmrl.commands.fit import fit
from mmrl.commands.options import RECORD_OPTIONS
from mmrl.config.compose import CONF, groups
from mmrl.config.renamed import find_new_option, find_new_path, load_table
from mmrl.config.signatures import constructor_parameters
from mmrl.config.wiring import load
from mmrl.core.columns import find_column
from mmrl.core.errors import ConfigError
from mmrl.experiments.columns_page import import_methods
from mmrl.experiments.experiment import Baseline, Experiment

PARTS = {
    "data.passes=2": "data.passes was renamed to data.update_epochs",
    "+data.prompts=2": "data.prompts was renamed to data.num_prompts",
    "data.stages.gae.decay=0.9": "data.stages.gae.decay was renamed to data.annotators.gae.gae_lambda",
    "data.annotators.gae.decay=0.9": "data.annotators.gae.decay was renamed to data.annotators.gae.gae_lambda",
    "data.annotators.lead=null": "data.annotators.lead was renamed to data.annotators.distillation_target",
    "data.transforms.refill=null": "data.transforms.refill was renamed to data.transforms.dynamic_sampling",
    "data.pipeline=[correction]": "recipe 'grpo': data.pipeline: correction was renamed to importance",
    "objective.rows.policy=first": "objective.rows.policy was renamed to objective.row_masks.policy",
    "objective.terms.policy.low=0.1": "objective.terms.policy.low was renamed to objective.terms.policy.clip_low",
    "model.objective.terms.policy.importance_sampling_level=row": (
        "model.objective.terms.policy.importance_sampling_level: row was renamed to joint"
    ),
    "objective.row_masks.policy=~first": (
        "recipe 'grpo': objective.row_masks['policy'] reads ['first'], and no part writes them; "
        "first was renamed to is_first"
    ),
    "data.curriculum.count=${data.prompts}": (
        "data.curriculum.count: ${data.prompts} was renamed to ${data.num_prompts}"
    ),
    "data.rollout._target_=mmrl.rollouts.env.EnvEpisodes": (
        "data.rollout._target_: mmrl.rollouts.env.EnvEpisodes was renamed to mmrl.rollouts.env.episodic.EpisodicRollout"
    ),
    "trainer.callbacks.start.take=frozen": (
        "trainer.callbacks.start.take was renamed to trainer.callbacks.warm_start.frozen_only"
    ),
    "trainer.callbacks.checkpoint.monitor=seconds/rows": (
        "trainer.callbacks.checkpoint.monitor: seconds/rows was renamed to time/collate"
    ),
    "trainer.callbacks.checkpoint.monitor=val/length/cut_at_length": (
        "trainer.callbacks.checkpoint.monitor: val/length/cut_at_length was renamed to val/length/truncated_fraction"
    ),
    "rollout=attempts": "rollout=attempts was renamed to rollout=self_correction",
    "curriculum=counted": "curriculum=counted was renamed to curriculum=stratified",
}


@pytest.mark.parametrize("word", PARTS)
def test_an_override_with_a_renamed_name_is_refused_with_the_present_one(word):
    with pytest.raises(ConfigError) as refused:
        fit(["recipe=grpo", word, "--print_config"])
    assert str(refused.value) == PARTS[word]


@pytest.mark.parametrize(
    "recipe, word, message",
    [
        ("sac", "data.random=9", "data.random was renamed to data.learning_starts"),
        ("sac", "model.copies.slow_critic=critic", "model.copies.slow_critic was renamed to model.target_networks."),
        ("sac", "model.target_networks.slow_critic=critic", "model.target_networks.slow_critic was renamed to model."),
        (
            "sac",
            "model.phases.follow.rate=0.1",
            "model.phases.follow.rate was renamed to model.phases.polyak_update",
        ),
        ("flow_bc", "policy.lessons=2", "policy.lessons was renamed to policy.timesteps_per_sample"),
        ("ipo", "objective.terms.preference.loss_type=squared", "loss_type: squared was renamed to ipo"),
    ],
)
def test_a_renamed_key_is_found_by_the_class_of_its_part(recipe, word, message):
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        fit([f"recipe={recipe}", word, "--print_config"])


OLD_STARTS = {
    "sft_start": "sums",
    "eag_rl_start": "records",
    "evo_present_start": "slides",
    "hunyuan_mt_start": "translations",
    "mini_vlm_start": "mini_vlm",
    "graphs_start": "graphs",
    "clone_vla": "clone_vla",
    "attempts_start": "self_correction",
}


@pytest.mark.parametrize("old", OLD_STARTS)
def test_a_recipe_that_is_a_start_is_refused_with_its_present_words(old):
    with pytest.raises(ConfigError, match=rf"^recipe={old} was renamed to start={OLD_STARTS[old]}$"):
        fit([f"recipe={old}"])


def test_every_start_that_was_a_recipe_is_there():
    starts = {name for name in load_table()["options"]["recipe"].values() if name.startswith("start=")}
    assert len(starts) == 41 and starts <= {f"start={name}" for name in groups()["start"]}


def test_a_stage_with_an_old_recipe_is_refused_in_a_written_file_and_on_the_command_line(tmp_path, capsys):
    word = "trainer.callbacks.warm_start.stages.sft=['recipe=sft_start']"
    message = "warm_start.stages.sft: recipe=sft_start was renamed to start=sums"
    with pytest.raises(ConfigError, match=message):
        fit(["recipe=grpo", word, "--print_config"])
    fit(["recipe=grpo", word.replace("recipe=sft_start", "start=sums"), "--print_config"])
    (tmp_path / "run.yaml").write_text(capsys.readouterr().out.replace("start=sums", "recipe=sft_start"))
    with pytest.raises(ConfigError, match=r"stages.sft: recipe=sft_start was renamed to start=sums"):
        fit(["--config", str(tmp_path / "run.yaml")])


def test_a_side_of_an_experiment_with_an_old_recipe_is_refused():
    experiment = Experiment("dapo", "", "val/greedy/exact/mean", baseline=Baseline("start", ["recipe=sft_start"]))
    with pytest.raises(ConfigError, match=r"^recipe=sft_start was renamed to start=sums$"):
        fit(experiment.sides()["baseline"])


def test_a_recipe_of_ones_own_may_have_an_old_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "conf" / "recipe" / "sft_start.yaml").write_text("# @package _global_\ndefaults: [grpo]\n")
    fit(["recipe=sft_start", "--print_config"])
    fit(["recipe=grpo", "trainer.callbacks.warm_start.stages.sft=['recipe=sft_start']", "--print_config"])


def test_an_old_file_is_refused_with_its_renamed_classes_and_keys(tmp_path):
    gae = {"class_path": "mmrl.stages.gae.GAE", "init_args": {"discount": 1.0}}
    arguments = {"passes": 2, "rollout": None, "stages": {"gae": gae}, "reward": None}
    config = {"model": {}, "data": {"class_path": "mmrl.learners.rollout_data.RolloutData", "init_args": arguments}}
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    with pytest.raises(ConfigError) as refused:
        fit(["--config", str(tmp_path / "old.yaml")])
    assert str(refused.value) == f"{tmp_path / 'old.yaml'}: " + "; ".join(
        [
            "data: mmrl.learners.rollout_data.RolloutData was renamed to mmrl.data.rollout_data.RolloutData",
            "data.passes was renamed to data.update_epochs",
            "data.stages was renamed to data.annotators",
            "data.annotators.gae: mmrl.stages.gae.GAE was renamed to mmrl.annotators.gae.GAE",
            "data.annotators.gae.discount was renamed to data.annotators.gae.gamma",
        ]
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["--data.passes", "2"], "data.passes was renamed to data.update_epochs"),
        (["--data.init_args.passes=2"], "data.init_args.passes was renamed to data.init_args.update_epochs"),
        (
            ["--data.rollout", "mmrl.rollouts.tree.TreeSearch"],
            "data.rollout: mmrl.rollouts.tree.TreeSearch was renamed to mmrl.methods.search.deep_search.TreeSearch",
        ),
    ],
)
def test_an_old_argument_beside_a_file_is_refused(tmp_path, capsys, words, message):
    fit(["recipe=grpo", "--print_config"])
    (tmp_path / "run.yaml").write_text(capsys.readouterr().out)
    with pytest.raises(ConfigError) as refused:
        fit(["--config", str(tmp_path / "run.yaml"), *words])
    assert str(refused.value) == message


def test_old_arguments_of_the_other_commands_are_refused(tmp_path):
    (tmp_path / "config.yaml").touch()
    for word, new in {"attempts=8": "num_samples", "clips=2": "video_episodes"}.items():
        with pytest.raises(ConfigError, match=f"^{word.partition('=')[0]} was renamed to {new}$"):
            evaluation_arguments.parse([str(tmp_path), word])
    with pytest.raises(ConfigError, match=r"^episodes was renamed to num_episodes$"):
        record(["sim=reach", "episodes=3"])
    with pytest.raises(ConfigError, match=r"^stages was renamed to annotators$"):
        find_group("stages")


def test_a_part_of_ones_own_may_have_any_name():
    part = "{_target_: mmrl.annotators.logprobs.OldLogprobs}"
    fit(["recipe=grpo", f"data.annotators.lead={part}", "data.pipeline=[group_advantage,lead]", "--print_config"])


def _names(node: Any) -> Iterator[str]:
    for name, value in node.items() if isinstance(node, dict) else ():
        yield str(name)
        yield from _names(value)


def test_every_present_name_of_the_table_is_there_and_every_old_one_is_not():
    table, options = load_table(), groups()
    for group, names in table["options"].items():
        words = {find_new_option(group, old).partition("=")[::2] for old in names}
        assert all(name in options[kind] for kind, name in words) and not set(names) & set(options[group])
    for new, names in table["arguments"].items():
        taken = set(constructor_parameters(load(new)))
        if "kwargs" not in taken:
            assert set(names.values()) <= taken, new
        assert not set(names) & taken, new
    for old, new in table["classes"].items():
        assert inspect.isclass(load(new)) and not _is_there(old), old
    for old, new in table["modules"].items():
        module = importlib.import_module(new)
        names = [name for name, part in vars(module).items() if getattr(part, "__module__", None) == new]
        # a package that collects the classes of its modules, or a module of constants
        names = names or getattr(module, "__all__", [name for name in vars(module) if name[0].isupper()])
        assert names and not any(_is_there(f"{old}.{name}") for name in names), old
        assert find_new_path(f"{old}.{names[0]}") in (f"{new}.{names[0]}", table["classes"].get(f"{old}.{names[0]}"))
    import_methods()
    assert all(find_column(new) and not find_column(old) for old, new in table["columns"].items())
    assert set(table["commands"]["evaluate"].values()) <= set(evaluation_arguments.OPTIONS)
    assert set(table["commands"]["record"].values()) <= set(RECORD_OPTIONS)
    assert all(find_group(name) for name in table["commands"]["list"].values())


def test_every_present_name_of_a_part_is_in_a_recipe_and_every_value_is_taken():
    used = {name for file in CONF.rglob("*.yaml") for name in _names(yaml.safe_load(file.read_text()))}
    for names in load_table()["parts"].values():
        assert set(names.values()) <= used
    values = load_table()["values"]
    surrogate = typing.get_type_hints(load("mmrl.objectives.policy.ClippedSurrogate").__init__)
    dpo = typing.get_type_hints(load("mmrl.objectives.preference.DPOLoss").__init__)
    for name, hints in {"importance_sampling_level": surrogate, "loss_type": dpo, "reduction": dpo}.items():
        assert set(values[name].values()) <= set(typing.get_args(hints[name]))
        assert not set(values[name]) & set(typing.get_args(hints[name]))


def _is_there(path: str) -> bool:
    try:
        load(path)
    except (ImportError, AttributeError):
        return False
    return True
