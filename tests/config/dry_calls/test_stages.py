"""A warm-start stage of a frozen model trains a model of that kind."""

import pytest

import mmrl
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.stages import check_stages, read_stages
from mmrl.core.errors import ConfigError

STAGE = "trainer.callbacks.warm_start.stages.step_scorer"


def test_a_stage_that_trains_another_kind_of_model_is_refused_before_it_runs(tmp_path):
    """The recipe's policy is that of all stages that name none, also of a start with a policy of its own."""
    words = ["recipe=clip_delta", f"run_dir='{tmp_path / 'run'}'", f'{STAGE}=["start=graph_step_scorer"]']
    message = (
        r"stage step_scorer trains a TextPolicy, and model\.frozen_models\.step_scorer is a StepScoringPolicy: .*"
        r"stages\.step_scorer=\[\"start=graph_step_scorer\", \"policy=NAME\"\]'"
    )
    with pytest.raises(ConfigError, match=message):
        mmrl.fit(*words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe", ["clip_delta", "line_labels", "prof", "agent_rlvr_reward", "brpo", "cosmos"])
def test_stages_of_frozen_models_train_models_of_their_kind(recipe):
    config = to_lightning(compose([f"recipe={recipe}", "run_dir=run"]))
    assert set(read_stages(config)) & set(config["model"]["init_args"]["frozen_models"])
    check_stages(config)
