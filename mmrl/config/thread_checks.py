"""Checks of sampling beside learning (`data.staleness`) before any part is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmrl.config.wiring import build_nested, build_samplers, load
from mmrl.core.errors import ConfigError
from mmrl.distributed.fsdp2 import is_fsdp2
from mmrl.engines.base import list_models
from mmrl.transforms.base import find_readers


def check_threads(trainer: Mapping[str, Any], model: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Refuse engines and models that a thread beside the learner cannot use.

    Args:
        trainer: resolved: strategy, devices, num_nodes and so on.
        model: {class_path, init_args} of the learner.
        data: {class_path, init_args} of the data module.

    Raises:
        ConfigError: with the keys and what to use.
    """
    module, learner = data.get("init_args") or {}, model.get("init_args") or {}
    if not module.get("staleness") or "engine" not in module:
        return
    where, engine = f"data.staleness={module['staleness']}", module["engine"]
    # engines whose collectives would meet those of the learner
    if _has_several_processes(trainer):
        for part in _classes(engine):
            if (obstacle := getattr(part, "thread_obstacle", None)) is not None:
                raise ConfigError(
                    f"{where} with several processes (trainer.devices), data.engine: {obstacle}; use "
                    "engine=vllm_server or engine=local, or data.staleness=0"
                )
    # models that the thread cannot read while the learner trains
    sharded = is_fsdp2(trainer.get("strategy"))
    names = frozenset(learner.get("auxiliary_models") or ())
    reason = "the model is trained meanwhile"
    if sharded:
        names |= frozenset(learner.get("frozen_models") or ()) | ({"reference"} if learner.get("reference") else set())
        reason = "the model's weights are sharded (strategy=fsdp2)"
    transforms = {name: build_nested(spec) for name, spec in (module.get("transforms") or {}).items() if spec}
    readers = [f"data.transforms.{name} reads {value!r}" for name, value in find_readers(transforms, names)]
    if sharded and load(engine["class_path"]).uses_policy:
        sampled = list_models(build_samplers(module, list(transforms.values())))
        readers += [f"data.engine samples {name!r}, a model of the learner," for name in sorted(sampled)]
    if readers:
        remedy = "strategy=ddp or engine=vllm_server" if sharded else "a model of model.frozen_models"
        raise ConfigError(
            f"{where}: {readers[0]} in the thread that samples beside learning, and {reason}; use {remedy}, or "
            "data.staleness=0"
        )


def _has_several_processes(trainer: Mapping[str, Any]) -> bool:
    """Whether the configuration names more than one process; "auto" is checked when the run has started."""
    devices, nodes = trainer.get("devices"), trainer.get("num_nodes") or 1
    count = len(devices) if isinstance(devices, list) else devices
    return isinstance(count, int) and isinstance(nodes, int) and max(count, 1) * nodes > 1


def _classes(spec: Any) -> Iterator[type]:
    """Yield the class of a part and those of its arguments."""
    if isinstance(spec, Mapping):
        if "class_path" in spec:
            yield load(spec["class_path"])
        for value in (spec.get("init_args") or {}).values():
            yield from _classes(value)
