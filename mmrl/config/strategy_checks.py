"""Check the strategy of a composed configuration, and what cannot run under it, before any part is built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mmrl.core.errors import ConfigError

_SHARDED = ("fsdp2", "mmrl.distributed.fsdp2.FSDP2")
_OWN = (*_SHARDED, "mmrl.distributed.ddp.DDP")
_UNSHARDED = ("bitsandbytes.optim.",)
"""Modules of optimisers that work on plain tensors alone."""
_REFUSED = {
    r"deepspeed\w*": "DeepSpeed is not implemented, since fsdp2 shards the same tensors",
    r"ddp_(spawn|fork|notebook)\w*": "processes that multiprocessing starts are not supported",
    r"fsdp|fsdp_cpu_offload|fsdpstrategy": "FSDP1 is not implemented",
    r"modelparallelstrategy": "tensor parallelism is not implemented",
}
"""Reasons by the registered name or the name of the class, in lower case."""
_DIVIDES = {
    "shard_size": "use a divisor, such as the number of GPUs of a node",
    "sequence_parallel": "use a divisor of them, or trainer.devices that it divides",
}
"""Options of our strategies that divide the processes, with the remedy."""


def check_strategy_options(trainer: Any) -> None:
    """Refuse options of a strategy of Lightning that is known by its name alone, such as ddp.

    Args:
        trainer: plain values; without a class, the strategy's options have replaced its name.
    """
    strategy = trainer.get("strategy") if isinstance(trainer, Mapping) else None
    if isinstance(strategy, Mapping) and "class_path" not in strategy:
        raise ConfigError(
            f"strategy.{next(iter(strategy), 'KEY')}: strategy=auto and strategy=ddp have no options; name a strategy "
            "that has them: strategy=fsdp2, or strategy=sequence_parallel for copies of the weights"
        )


def check_strategy(trainer: Mapping[str, Any]) -> None:
    """Refuse strategies that `parallel.refuse_strategy` refuses in every process, and shard sizes that do not divide.

    Without this check Lightning asks for DeepSpeed's package, or for a GPU, before the strategy is refused.

    Args:
        trainer: resolved: strategy, devices, num_nodes and so on.

    Raises:
        ConfigError: with the key and what to use.
    """
    strategy = trainer.get("strategy")
    name = _name(strategy)
    if name in _OWN and isinstance(strategy, Mapping):
        for key, remedy in _DIVIDES.items():
            _check_divisor(key, (strategy.get("init_args") or {}).get(key), trainer, remedy)
    if not isinstance(name, str) or name in _OWN:
        return
    for pattern, reason in _REFUSED.items():
        if re.fullmatch(pattern, name.rpartition(".")[2].lower()):
            raise ConfigError(
                f"trainer.strategy={name}: {reason}; use strategy=ddp (a copy of the weights in every process) or "
                "strategy=fsdp2 (weights sharded over all processes)"
            )


def check_optimizers(model: Any, trainer: Mapping[str, Any]) -> None:
    """Refuse optimisers that do not know sharded weights under a strategy that shards them.

    Args:
        model: of the learner, its parts as {class_path, init_args}.
        trainer: resolved.

    Raises:
        ConfigError: with the key and what to use.
    """
    if _name(trainer.get("strategy")) not in _SHARDED:
        return
    nodes = [("model", model)]
    while nodes:
        key, node = nodes.pop()
        name = str(node.get("class_path", "")) if isinstance(node, Mapping) else ""
        if name.startswith(_UNSHARDED):
            raise ConfigError(
                f"{key}={name}: its kernels take no sharded weights, so strategy=fsdp2 cannot run it; use "
                "strategy=ddp, or torch.optim.AdamW, whose state fsdp2 divides among the processes"
            )
        if isinstance(node, Mapping):
            nodes += [(f"{key}.{part}" if part != "init_args" else key, value) for part, value in node.items()]


def _check_divisor(key: str, size: Any, trainer: Mapping[str, Any], remedy: str) -> None:
    """Refuse a size that does not divide the number of processes, if the configuration names that number."""
    devices, nodes = trainer.get("devices"), trainer.get("num_nodes") or 1
    devices = len(devices) if isinstance(devices, list) else devices
    if not all(isinstance(value, int) and value > 0 for value in (size, devices, nodes)):
        return
    if devices * nodes % size:
        raise ConfigError(
            f"trainer.strategy.{key}={size} does not divide the {devices * nodes} processes (trainer.devices "
            f"times trainer.num_nodes); {remedy}"
        )


def _name(strategy: Any) -> Any:
    """The class or the registered name of a strategy."""
    return strategy.get("class_path") if isinstance(strategy, Mapping) else strategy
