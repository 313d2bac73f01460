"""Parts that are built for checks alone are those that the typed parser builds."""

from dataclasses import dataclass, field

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.wiring import build_arguments, build_nested
from mmrl.rewards.steps import StepReward, StepTransform

STEP_REWARD = (
    "{_target_: mmrl.rewards.steps.StepReward, weights: {exact: 0.0, step_reward: 1.0}, "
    "scorer: {_target_: mmrl.rewards.steps.FunctionScorer, function: 'tasks.graphs.rewards:score_length'}}"
)


@pytest.mark.parametrize("word, expected", [(None, StepTransform()), ("data.reward.transform.delta=true", None)])
def test_a_dataclass_among_the_arguments_of_a_reward_is_built_for_the_check_as_for_the_run(tmp_path, word, expected):
    words = ["recipe=grpo", "task=graphs", f"data.reward={STEP_REWARD}", *filter(None, [word]), f"run_dir={tmp_path}"]
    cli = CLI(to_lightning(compose(words)), build=False)
    cli.build()  # calls the reward that was built for the check
    reward = cli.datamodule.reward
    assert isinstance(reward, StepReward) and reward.transform == (expected or StepTransform(delta=True))
    plain = cli.config.data.init_args.reward.as_dict()
    assert build_nested(plain).transform == reward.transform


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Middle:
    inner: Inner = field(default_factory=Inner)


class Outer:
    def __init__(self, middle: Middle, other: "Unknown" = None):  # noqa: F821  # a name for type checkers alone
        self.middle = middle


def test_dataclasses_are_built_at_any_depth_and_a_name_for_type_checkers_alone_is_no_error():
    assert build_arguments(Middle, {"inner": {"size": 2}}) == {"inner": Inner(2)}
    assert build_arguments(Outer, {"middle": {"inner": {"size": 2}}}) == {"middle": {"inner": {"size": 2}}}
