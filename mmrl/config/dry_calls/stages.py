"""The warm-start stages of a run, and the refusal of those that train another kind of model than the one they start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmrl.config.compose import compose
from mmrl.config.signatures import import_class
from mmrl.core.errors import ConfigError


@dataclass(frozen=True)
class WarmStartStage:
    """Arguments of a warm-start stage, those that all stages share included, and the `words` of its own."""

    arguments: list[str]
    words: list[str]


def read_stages(config: Mapping[str, Any]) -> dict[str, WarmStartStage]:
    """The warm-start stages that will run, by name.

    Args:
        config: of the run, its parts as {class_path, init_args}.
    """
    if config.get("ckpt_path") is not None:
        return {}
    policy = config["model"]["init_args"].get("policy") or {}
    loaded = (policy.get("init_args") or {}).get("path") is not None
    stages = {}
    for callback in (config.get("trainer") or {}).get("callbacks") or ():
        kind, options = import_class(callback["class_path"]), callback.get("init_args") or {}
        if hasattr(kind, "stage_arguments"):
            arguments = kind.stage_arguments(options, loaded)
            stages |= {name: WarmStartStage(words, options["stages"][name]) for name, words in arguments.items()}
    return stages


def check_stages(config: Mapping[str, Any]) -> None:
    """Refuse a stage of a frozen model that would train a policy of another class.

    Raises:
        ConfigError: with the stage, both classes, and what to add.
    """
    frozen = config["model"]["init_args"].get("frozen_models") or {}
    for name, stage in read_stages(config).items():
        if name not in frozen:
            continue
        trained = import_class(compose(stage.arguments).model.policy._target_)
        started = import_class(frozen[name]["class_path"])
        if trained is not started:
            raise ConfigError(
                f"the warm-start stage {name} trains a {trained.__name__}, and model.frozen_models.{name} is a "
                f"{started.__name__}: name a policy of that class in the stage, as in "
                f"'trainer.callbacks.warm_start.stages.{name}={json.dumps([*stage.words, 'policy=NAME'])}'"
            )
