"""Check a composed configuration before its parts are built."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmrl.config.bounds import SEEDS, find_violation
from mmrl.config.strategy_checks import check_optimizers, check_strategy
from mmrl.core.errors import ConfigError

MOST_ROWS = 10**7
"""Episodes of an iteration; more do not fit into a machine's memory."""
_FOLDERS = ("run_dir", "dirpath", "save_dir", "default_root_dir")
_LONGEST_NAME = 255  # bytes, of every common file system
_CALLBACKS = {
    "LearningRateFinder": "trains trial steps before the first iteration, on rows that are not there yet",
    "Timer": "is what trainer.max_time sets; set that, and the run says how it is resumed",
    "BatchSizeFinder": "changes the batch size of a data loader, and here data.num_minibatches decides it",
}
"""Callbacks of Lightning that cannot work here, by class, with the reason."""
_UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


def check_numbers(config: Mapping[str, Any]) -> None:
    """Refuse numbers that are not finite, too large for any run, or outside the range of their option.

    Args:
        config: nested plain values; a part is {_target_, ...} or {class_path, init_args}. Interpolations are skipped.
    """
    first = ("seed_everything", "trainer", "data")  # values that others are computed from
    ordered = {name: config[name] for name in (*first, *config) if name in config}
    for key, value in _leaves(ordered):
        if (wrong := find_violation(key, value)) is not None:
            raise ConfigError(f"{key} {wrong}")


def check_config(config: Mapping[str, Any]) -> None:
    """Refuse invalid numbers, folders, strategies, sizes, lengths and callbacks.

    Args:
        config: resolved: trainer, model, data, run_dir and so on, its parts as {class_path, init_args}.
    """
    check_seed("seed_everything", config.get("seed_everything"))
    check_numbers(config)
    for key, value in _leaves(config):
        if key.rpartition(".")[2] in _FOLDERS and value is not None:
            check_folder(key, value)
    data, model, trainer = (config.get(name) or {} for name in ("data", "model", "trainer"))
    check_strategy(trainer)
    check_optimizers(model, trainer)
    _check_whole_iterations(trainer)
    _check_precision(trainer)
    _check_time(trainer)
    _check_evaluation(_arguments(data), trainer)
    _check_sizes(_arguments(data), trainer)
    _check_lengths(_arguments(data), _arguments(model))
    _check_callbacks(trainer.get("callbacks"), _arguments(data))


def check_seed(key: str, value: Any) -> None:
    """Refuse a seed that NumPy does not accept."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SEEDS:
        raise ConfigError(f"{key} must be a whole number from 0 to {SEEDS}, got {value!r}")


def _leaves(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over plain values with their dotted keys, as on the command line."""
    if isinstance(node, Mapping):
        if "class_path" in node:
            node = node.get("init_args") or {}
        for name, value in node.items():
            yield from _leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, (list, tuple)):
        for number, value in enumerate(node):
            yield from _leaves(value, f"{key}.{number}")
    else:
        yield key, node


def _arguments(part: Any) -> Mapping[str, Any]:
    return (part.get("init_args") or {}) if isinstance(part, Mapping) else {}


def check_folder(key: str, name: Any) -> None:
    """Refuse a folder that cannot be created, without creating it."""
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigError(f"{key} must be a folder's name (text), got {name!r}")
    text = str(name)
    if not text.strip():
        if key == "run_dir":
            raise ConfigError("run_dir is empty: name a folder, or leave it out for runs/RECIPE/TIME")
        return  # an empty text selects a logger's default
    if "://" in text:
        return  # a remote file system, which Lightning writes to
    if bad := [character for character in text if not character.isprintable()]:
        raise ConfigError(f"{key}={text!r}: the character {bad[0]!r} is not allowed in a folder's name; use others")
    if long := [part for part in Path(text).parts if len(os.fsencode(part)) > _LONGEST_NAME]:
        raise ConfigError(
            f"{key}: the name {long[0][:40]}... has {len(os.fsencode(long[0]))} bytes, file systems take at most "
            f"{_LONGEST_NAME}; choose another folder"
        )
    place = Path(text)
    ancestor = next(parent for parent in (place, *place.absolute().parents) if os.path.lexists(parent))
    if not ancestor.is_dir():
        raise ConfigError(f"{key}={text}: {ancestor} is a file, not a folder; choose another one")
    try:
        with tempfile.TemporaryFile(dir=ancestor):
            pass
    except OSError as error:
        raise ConfigError(
            f"{key}={text}: {ancestor} cannot be written ({error.strerror}); choose another folder"
        ) from error


def _check_whole_iterations(trainer: Mapping[str, Any]) -> None:
    """Refuse options of Lightning that end an iteration before all of its rows were trained on."""
    share = trainer.get("limit_train_batches")
    values = {"overfit_batches": trainer.get("overfit_batches"), "fast_dev_run": trainer.get("fast_dev_run")}
    broken = {name: value for name, value in values.items() if value}
    if share is not None and not (isinstance(share, float) and share == 1):
        broken["limit_train_batches"] = share
    for name, value in broken.items():
        raise ConfigError(
            f"trainer.{name}={value}: an iteration would be broken off; trainer.max_epochs counts iterations, and "
            "data.num_prompts and data.group_size are their size"
        )


def _check_precision(trainer: Mapping[str, Any]) -> None:
    if str(trainer.get("precision")) in ("64", "64-true"):
        raise ConfigError(
            f"trainer.precision={trainer['precision']}: policies compute in float32 or less (policy.dtype); use "
            "32-true or bf16-mixed"
        )


def _check_time(trainer: Mapping[str, Any]) -> None:
    """Refuse a time limit of no time; Lightning checks its form."""
    limit = trainer.get("max_time")
    parts = limit.split(":") if isinstance(limit, str) else list(limit.values()) if isinstance(limit, Mapping) else []
    numbers = [float(part) for part in parts if str(part).strip().isdigit()]
    if numbers and len(numbers) == len(parts) and not any(numbers):
        raise ConfigError(f"trainer.max_time={limit}: no time, so nothing would be trained; null sets no limit")
    if isinstance(limit, Mapping):
        if unknown := sorted(set(map(str, limit)) - set(_UNITS)):
            raise ConfigError(f"trainer.max_time.{unknown[0]} is no unit of time; there are {', '.join(_UNITS)}")
        if any(isinstance(part, (int, float)) and part < 0 for part in parts):
            raise ConfigError(f"trainer.max_time={limit}: a time is not negative; null sets no limit")


def _check_evaluation(data: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    """Refuse a limit with which Lightning leaves every evaluation out but that of the start."""
    limit = trainer.get("limit_val_batches")
    if limit is not None and not limit and data.get("evaluation") is not None:
        raise ConfigError(
            f"trainer.limit_val_batches={limit}: data.evaluation would be measured at the start alone; null measures "
            "it, and data.evaluation=null measures nothing"
        )


def _check_sizes(data: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    prompts, group_size = data.get("num_prompts"), data.get("group_size")
    if isinstance(prompts, int) and isinstance(group_size, int) and prompts * group_size > MOST_ROWS:
        raise ConfigError(
            f"data.num_prompts={prompts} times data.group_size={group_size} is {prompts * group_size} episodes an "
            f"iteration, more than {MOST_ROWS}; lower one of them"
        )
    devices, cores = trainer.get("devices"), max(os.cpu_count() or 1, 8)
    if isinstance(devices, int) and trainer.get("accelerator") == "cpu" and devices > cores:
        raise ConfigError(f"trainer.devices={devices}: a process each, and there are {os.cpu_count()} cores; lower it")
    if isinstance(devices, int) and not isinstance(devices, bool) and devices in (0, -2):
        raise ConfigError(f"trainer.devices must be at least 1, or -1 for all, got {devices}")


def _check_lengths(data: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Refuse completions longer than the positions of a model that the configuration describes."""
    config = _arguments(model.get("policy")).get("config")
    _check_heads(config, "model.policy.config")
    limit = config.get("max_position_embeddings") if isinstance(config, Mapping) else None
    if not isinstance(limit, int):
        return
    held_out = _arguments(data.get("evaluation")).get("sampling") or {}
    decodes = {"data.sampling": data.get("sampling")}
    decodes |= {f"data.evaluation.sampling.{name}": part for name, part in held_out.items()}
    for key, sampling in decodes.items():
        max_tokens = sampling.get("max_tokens") if isinstance(sampling, Mapping) else None
        if isinstance(max_tokens, int) and max_tokens >= limit:
            raise ConfigError(
                f"{key}.max_tokens={max_tokens} leaves no room for a prompt in the {limit} positions of the model "
                "(model.policy.config.max_position_embeddings); lower max_tokens"
            )


def _check_heads(config: Any, key: str) -> None:
    """Check the numbers of attention heads of transformer configurations, at any depth."""
    if not isinstance(config, Mapping):
        return
    size, heads, pairs = (config.get(name) for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if isinstance(size, int) and isinstance(heads, int) and "head_dim" not in config and size % heads:
        raise ConfigError(
            f"{key}.hidden_size={size} is not divisible by {key}.num_attention_heads={heads}; change one of them"
        )
    if isinstance(heads, int) and isinstance(pairs, int) and heads % pairs:
        raise ConfigError(
            f"{key}.num_attention_heads={heads} is not divisible by {key}.num_key_value_heads={pairs}; change one"
        )
    for name, part in config.items():
        _check_heads(part, f"{key}.{name}")


def _check_callbacks(callbacks: Any, data: Mapping[str, Any]) -> None:
    saved: dict[tuple, list[str]] = defaultdict(list)
    for part in callbacks if isinstance(callbacks, list) else []:
        arguments, name = _arguments(part), str(part.get("class_path", "")) if isinstance(part, Mapping) else ""
        monitor = arguments.get("monitor")
        if name.startswith(("lightning.", "pytorch_lightning.")) and name.rpartition(".")[2] in _CALLBACKS:
            raise ConfigError(
                f"trainer.callbacks ({name}) {_CALLBACKS[name.rpartition('.')[2]]}; take it out with "
                "trainer.callbacks.NAME=null"
            )
        if isinstance(monitor, str) and monitor.startswith("val/") and data.get("evaluation") is None:
            raise ConfigError(
                f"trainer.callbacks ({name}) waits for {monitor!r}, which nothing measures without data.evaluation; "
                "name an evaluation, or take the callback out with trainer.callbacks.NAME=null"
            )
        if name.endswith(".ModelCheckpoint"):
            when = tuple(arguments.get(key) for key in ("monitor", "mode", "every_n_train_steps", "every_n_epochs"))
            saved[(*when, str(arguments.get("train_time_interval")))].append(f"{arguments.get('filename')!r}")
    for when, files in saved.items():
        if len(files) > 1:
            raise ConfigError(
                f"trainer.callbacks: {len(files)} ModelCheckpoint callbacks (filename {' and '.join(files)}) save "
                f"alike, with every_n_epochs={when[3]}, and Lightning cannot tell them apart in a checkpoint; give one "
                "another every_n_epochs, or take it out with trainer.callbacks.NAME=null"
            )
