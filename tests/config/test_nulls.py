"""KEY=null of a run that is built again is no value, at every depth and for every type."""

import pytest
import yaml

from mmrl.commands.cli import CLI, load_run
from mmrl.config.compose import compose, to_lightning
from mmrl.config.signatures import pass_nulls

WORDS = ["recipe=ppo_control", "sim.id=CartPole-v1", "sim.max_episode_steps=30", "trainer.accelerator=cpu"]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "config.yaml"
    words = [*WORDS, "task=written_reward", "task.program=/nowhere.py", f"run_dir={path.parent}"]
    path.write_text(CLI(to_lightning(compose(words)), build=False).to_yaml())
    return path


def part(config, arguments, *names):
    """The value at a place of the typed configuration."""
    read = yaml.safe_load(config.read_text())
    given = ["--config", str(config), "--trainer.callbacks=null", *pass_nulls(read, arguments)]
    node = CLI(given, build=False, trains=False).config.as_dict()
    for name in names:
        node = node.get("init_args", node) if isinstance(node, dict) else node
        node = node[name]
    return node


@pytest.mark.parametrize(
    "argument",
    [
        "--data.task.program",
        "--data.task.sim.max_episode_steps",
        "--data.evaluation.interim_count",
        "--data.task.state_names",
    ],
)
def test_null_is_no_value(argument, config):
    names = argument.removeprefix("--").split(".")
    assert part(config, [f"{argument}=null"], *names) is None
    assert part(config, [f"{argument}=~"], *names) is None


def test_everything_else_stays(config):
    arguments = ["--data.task.program=null", "--data.task.count=7", "--data.task.sim.max_episode_steps=null"]
    assert part(config, arguments, "data", "task", "sim", "id") == "CartPole-v1"
    assert part(config, arguments, "data", "task", "count") == 7
    assert part(config, arguments, "data", "task", "program") is None
    assert part(config, arguments, "data", "num_minibatches") == part(config, [], "data", "num_minibatches")


def test_other_arguments_are_passed_as_they_are(config):
    read = yaml.safe_load(config.read_text())
    plain = ["--trainer.max_time=null", "--data.task.program=null.py", "--data.task.sim.id=x=null.y", "--data=null"]
    assert pass_nulls(read, plain) == plain


def test_a_run_without_its_program_can_be_built(config):
    with pytest.raises(ValueError, match=r"task.program=/nowhere.py cannot be read"):
        load_run(config)
    assert load_run(config, ["--data.task.program=null"]).datamodule.task.program is None
