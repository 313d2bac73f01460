"""Try the processor of a policy on the first observation and on an action, before anything is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.core.types import Sim
from mmrl.datasets.formats import open_dataset
from mmrl.policies.processor import Processor
from mmrl.rollouts.env.episodic import split_observations
from mmrl.rollouts.offline.episodes import OfflineRollout


def build_configured(model: Mapping[str, Any]) -> Processor | None:
    """Build the processor that a configuration states for its policy; None where it states none.

    Args:
        model: of the configuration, plain: {class_path, init_args}.
    """
    policy = (model.get("init_args") or {}).get("policy") or {}
    stated = (policy.get("init_args") or {}).get("processor") if isinstance(policy, Mapping) else None
    if not isinstance(stated, Mapping):
        return None
    try:
        return Processor.from_dict(stated)
    except Exception as error:
        raise _explain(error, "its settings") from error


def check_processor(processor: Any, data: Any) -> None:
    """Refuse a processor that cannot convert what the run's simulator or dataset gives, or its actions.

    A processor that changes nothing is not tried.

    Args:
        processor: of the policy.
        data: a data module, whose task has a simulator or whose rollout replays a dataset; others are not tried.

    Raises:
        ConfigError: with the processor's step and the cause.
    """
    if not isinstance(processor, Processor) or processor == Processor():
        return
    raw, action = _first_decision(data)
    if raw is None or action is None:
        return
    encoded = _try(processor.encode, raw, f"the first observation ({_describe(raw)})")
    for name in processor.images:
        if (image := encoded[name]).dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            shape = np.shape(raw[processor.names_before([name])[0]])
            text = f"turns image {name!r} of shape {shape} into {image.dtype} {image.shape}, not uint8 [H, W, 3]"
            raise ConfigError(f"policy.processor.images.{name} {text}; correct its layout")
    network = _try(processor.encode_action, action, f"an action of shape {action.shape}")
    back = _try(processor.decode, network, f"an action of the network of shape {network.shape}")
    if back.shape != action.shape or not np.isfinite(back).all():
        raise ConfigError(f"policy.processor turns an action of shape {action.shape} into {back.shape}, or not finite")


def _try(step: Callable[[Any], Any], value: Any, what: str) -> Any:
    try:
        return step(value)
    except Exception as error:
        raise _explain(error, what) from error


def _explain(error: Exception, what: str) -> ConfigError:
    cause = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return ConfigError(
        f"policy.processor cannot convert {what}: {cause}; correct policy.processor, or leave it out to change nothing"
    )


def _first_decision(data: Any) -> tuple[Mapping[str, Any] | None, np.ndarray | None]:
    """The first raw observation of a run and an action of the robot, [H, A] or [A]; None where there is none."""
    if isinstance(getattr(data, "rollout", None), OfflineRollout):
        dataset = open_dataset(data.rollout.path)
        try:
            decision = next(iter(dataset[0].decisions(1, None)), None)
        finally:
            dataset.close()
        return (None, None) if decision is None else (decision.raw, np.asarray(decision.output, np.float32))
    task = getattr(data, "task", None)
    if not isinstance(getattr(task, "sim", None), Sim):
        return None, None
    problems: Any = task.on("held_out")  # without the reward model of the training split
    env = problems.sim.make(1)
    try:
        observations, _ = env.reset(seed=[problems[0].info["seed"]])
        raw = dict(split_observations(observations, [0])[0])
        return raw, np.zeros(env.single_action_space.shape or (1,), np.float32)
    finally:
        env.close()


def _describe(raw: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {np.shape(value)}" for name, value in raw.items() if np.shape(value))
