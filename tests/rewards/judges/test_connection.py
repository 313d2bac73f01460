"""The options of a connection are declared once, and judge and reward take them under their own keys."""

import inspect

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.signatures import constructor_parameters
from mmrl.core.errors import ConfigError
from mmrl.rewards.judges.client import ServerConnection
from mmrl.rewards.judges.server import ServerJudge
from mmrl.rewards.models.server import ServerReward

CONNECTION = {"max_requests": 16, "timeout_s": 60.0, "retries": 5, "backoff_s": 1.0}
SERVED = (
    "recipe=grpo",
    "trainer.logger=false",
    "reward=server",
    "reward.url=http://127.0.0.1:9",
)


@pytest.mark.parametrize(("kind", "variable"), [(ServerJudge, "OPENAI_API_KEY"), (ServerReward, "MMRL_SERVE_TOKEN")])
def test_one_declaration_has_the_keys_and_defaults_of_both(kind, variable):
    parameters = constructor_parameters(kind)
    defaults = {name: parameters[name].default for name in (*CONNECTION, "key_variable")}
    assert defaults == {**CONNECTION, "key_variable": variable}
    assert not CONNECTION.keys() & inspect.signature(kind.__init__).parameters.keys() and issubclass(
        kind, ServerConnection
    )


def test_a_configuration_has_the_keys(tmp_path):
    cli = CLI(to_lightning(compose([*SERVED, "reward.retries=2", f"run_dir={tmp_path}"])), build=False)
    arguments = cli._plain()["data"]["init_args"]["reward"]["init_args"]
    assert {name: arguments[name] for name in CONNECTION} == {**CONNECTION, "retries": 2}
    with pytest.raises(ConfigError, match="tries"):
        CLI(to_lightning(compose([*SERVED, "reward.tries=2", f"run_dir={tmp_path}"])), build=False)


def test_a_wrong_number_names_the_key():
    with pytest.raises(ValueError, match=r"reward\.judge\.retries"):
        ServerJudge("http://127.0.0.1:9", "m", retries=-1)
    with pytest.raises(ValueError, match=r"reward\.timeout_s"):
        ServerReward("http://127.0.0.1:9", timeout_s=0)
