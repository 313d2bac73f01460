"""Keys with empty values: no part takes them, so they are refused and do not vanish."""

import copy

import pytest
import yaml
from omegaconf import OmegaConf

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.errors.parser import check_empty
from mmrl.config.overrides import check_removed
from mmrl.core.errors import ConfigError

RUN = (
    *("recipe=grpo", "task=arithmetic", "policy=tiny_text", "trainer.callbacks.warm_start.stages=null"),
    *("trainer.logger=false", "trainer.accelerator=cpu", "run_dir=runs/x"),
)
PLACES = (
    *(
        "data.sampling.logit_bias",
        "data.foo",
        "data.task.foo",
        "data.engine.foo",
        "data.rollout.foo",
        "data.reward.foo",
    ),
    *("data.parity.foo", "data.curriculum.foo", "data.weighting.foo", "data.annotators.group_advantage.foo"),
    *("data.evaluation.foo", "data.evaluation.sampling.greedy.foo", "data.evaluation.evaluators.exact.foo"),
    *("model.foo", "model.policy.foo", "model.objective.foo", "model.objective.terms.policy.foo"),
    *("model.optimizer.foo", "model.scheduler.foo", "trainer.foo", "trainer.callbacks.1.foo"),
)
KNOWN = ("model.policy.lora", "model.policy.template_arguments", "model.objective.coefficients", "data.evaluation.task")


@pytest.fixture(scope="module")
def run():
    given = to_lightning(compose(RUN))
    return given, CLI(copy.deepcopy(given), build=False)


def insert(given, key):
    node = given = copy.deepcopy(given)
    *parents, last = key.split(".")
    for name in parents:
        node = node[int(name)] if isinstance(node, list) else node[name]
        node = node["init_args"] if isinstance(node, dict) and "class_path" in node else node
    node[last] = {}
    return given


@pytest.mark.parametrize("key", PLACES)
def test_an_empty_value_of_an_unknown_key_is_refused(run, key):
    given, cli = run
    check_empty(given, cli.config)
    with pytest.raises(ConfigError, match=rf"unknown key '{key.rpartition('.')[2]}' .*It takes \w+"):
        check_empty(insert(given, key), cli.config)


@pytest.mark.parametrize("key", KNOWN)
def test_an_empty_value_of_a_known_key_stays(run, key):
    given, _ = run
    changed = insert(given, key)
    check_empty(changed, CLI(copy.deepcopy(changed), build=False).config)


def test_files_and_arguments_of_a_run_are_read_alike(run, tmp_path):
    _, cli = run
    file = tmp_path / "config.yaml"
    file.write_text(cli.to_yaml())
    with pytest.raises(ConfigError, match=r"--sampling\.logit_bias"):
        CLI(["--config", str(file), "--data.sampling.logit_bias={}"], build=False)
    content = yaml.safe_load(file.read_text())
    content["data"]["init_args"]["sampling"]["logit_bias"] = {}
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"data\.sampling: unknown key 'logit_bias'"):
        CLI(["--config", str(file)], build=False)


def test_a_part_that_is_not_there_cannot_be_taken_out():
    for words in ("trainer.callbacks.chekpoint=null", "data.transforms.zero_variance=null", "sampling.logit_bias=null"):
        with pytest.raises(ConfigError, match="takes out a part that is not there; "):
            compose([*RUN, words])
    compose([*RUN, "trainer.callbacks.checkpoint=null", "data.transforms.drop_zero_variance=null"])
    check_removed(["++a.rows.b=null"], OmegaConf.create({"a": {"rows": {"b": 1}}}), ("rows",))
    with pytest.raises(ConfigError, match=r"trainer\.callbacks\.foo=\{\} is no part"):
        to_lightning(compose([*RUN, "trainer.callbacks.foo={}"]))
