"""Refuse strategies that are not implemented, and shard sizes that do not divide, before a process is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mmrl.errors import ConfigError

_OWN = ("fsdp2", "mmrl.strategies.fsdp2.FSDP2")
_REFUSED = {
    r"deepspeed\w*": "DeepSpeed is not implemented, since fsdp2 shards the same tensors",
    r"fsdp|fsdp_cpu_offload|fsdpstrategy": "FSDP1 is not implemented",
    r"modelparallelstrategy": "tensor parallelism is not implemented",
}
"""Reasons by the registered name or the name of the class, in lower case."""


def check_strategy(trainer: Mapping[str, Any]) -> None:
    """Refuse strategies that `parallel.refuse_strategy` refuses in every process, and shard sizes that do not divide.

    Without this check Lightning asks for DeepSpeed's package, or for a GPU, before the strategy is refused.

    Args:
        trainer: resolved: strategy, devices, num_nodes and so on.

    Raises:
        ConfigError: with the key and what to use.
    """
    given = trainer.get("strategy")
    name = given.get("class_path") if isinstance(given, Mapping) else given
    if name in _OWN and isinstance(given, Mapping):
        _check_shard_size((given.get("init_args") or {}).get("shard_size"), trainer)
    if not isinstance(name, str) or name in _OWN:
        return
    for pattern, reason in _REFUSED.items():
        if re.fullmatch(pattern, name.rpartition(".")[2].lower()):
            raise ConfigError(
                f"trainer.strategy={name}: {reason}; use strategy=ddp (a copy of the weights in every process) or "
                "strategy=fsdp2 (weights sharded over all processes)"
            )


def _check_shard_size(size: Any, trainer: Mapping[str, Any]) -> None:
    """Refuse a shard size that does not divide the number of processes, if the configuration names that number."""
    devices, nodes = trainer.get("devices"), trainer.get("num_nodes") or 1
    devices = len(devices) if isinstance(devices, list) else devices
    if not all(isinstance(value, int) and value > 0 for value in (size, devices, nodes)):
        return
    if devices * nodes % size:
        raise ConfigError(
            f"trainer.strategy.shard_size={size} does not divide the {devices * nodes} processes (trainer.devices "
            "times trainer.num_nodes); use a divisor, such as the number of GPUs of a node"
        )
