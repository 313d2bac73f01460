"""Train from Python, by the code of `mmrl fit`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mmrl.api import objects
from mmrl.api.arguments import to_arguments, to_text
from mmrl.api.environments import sim_arguments
from mmrl.api.problems import task_arguments
from mmrl.api.run import Run
from mmrl.commands.project import enter_project
from mmrl.config.compose import PLAIN
from mmrl.core.errors import ConfigError
from mmrl.rewards.base import Reward


def fit(*overrides: str | Path, **keys: Any) -> Run:
    """Train a policy as `mmrl fit` does, with the same checks, run folder and warm-start stages.

    Args:
        overrides: `key=value` arguments of the command line, which override `keys`; or the config.yaml of a
            run, whose settings are used again.
        keys: top-level keys and their values: the name of an option (recipe="grpo"), a mapping of further keys
            (trainer={"max_epochs": 5}), or an object in the part's place: task= a Task or a list of problems, reward= a
            Reward, a function or a list of functions (see FunctionReward), sim= a Sim, a gymnasium id or a function
            that makes an environment, policy= a Policy, objective={"terms": {"mine": a Term}}, and so on for every
            part.
            run_dir, ckpt_path, seed, overwrite and trust as on the command line.

    Raises:
        ConfigError: an argument, value or file cannot be used; the message names it and the remedy.
        KeyboardInterrupt: Ctrl-C ended the run after its iteration, with a checkpoint. SIGTERM raises SystemExit(143).
    """
    from mmrl.commands.fit import fit as command

    enter_project(Path.cwd())
    arguments = _arguments(overrides, keys)
    has_objects = any(map(objects.is_kept, arguments))
    try:
        folder = command(arguments, _refuse_stages if has_objects else None)
    except SystemExit as error:
        if has_objects:
            print("The run has objects of this program: to resume it, run the program with ckpt_path", file=sys.stderr)
        if error.code == 128 + signal.SIGINT:
            raise KeyboardInterrupt from error
        raise
    if folder is None:
        raise ConfigError("--print_config prints a configuration and trains nothing; use the command `mmrl fit`")
    return Run(folder)


def _arguments(overrides: Sequence[str | Path], keys: Mapping[str, Any]) -> list[str]:
    texts = [str(argument) for argument in overrides]
    if texts and texts[0].endswith((".yaml", ".yml")) and "=" not in texts[0]:
        return _file_arguments(texts, keys)
    arguments = [
        argument for key, value in keys.items() for argument in _CONVERTERS.get(key, _key_arguments)(key, value)
    ] + texts
    return arguments


def _file_arguments(arguments: list[str], keys: Mapping[str, Any]) -> list[str]:
    """--key=value arguments beside the configuration file that is the first argument."""
    plain = {"seed_everything" if key == "seed" else key: value for key, value in keys.items() if value is not None}
    for key, value in plain.items():
        if not isinstance(value, str | Path | int | float):
            raise ConfigError(f"{key}: beside {arguments[0]} only single values can be given, as in run_dir=...")
    options = [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in plain.items()]
    return [
        f"--config={arguments[0]}",
        *(argument if argument.startswith("--") else f"--{argument}" for argument in arguments[1:]),
        *options,
    ]


def _refuse_stages(cfg: DictConfig) -> None:
    """Refuse warm-start stages that need an object which exists in this process alone: each runs in one of its own."""
    start = OmegaConf.select(cfg, "trainer.callbacks.warm_start") or {}
    object_arguments = [argument for argument in start.get("common") or () if objects.is_kept(argument)]
    stages = [name for name, stage in (start.get("stages") or {}).items() if stage is not None]
    has_weights = OmegaConf.select(cfg, "model.policy.path") is not None or cfg.get("ckpt_path") is not None
    if object_arguments and stages and not has_weights:
        key = object_arguments[0].partition("=")[0].removesuffix("._target_")
        raise ConfigError(
            f"the warm-start stages {stages} run in processes of their own, which do not have the object of {key}: "
            "define its class in a module that can be imported, or leave the stages out with "
            "trainer.callbacks.warm_start.stages=null"
        )


def _key_arguments(key: str, value: Any) -> Iterator[str]:
    """The arguments of a top-level key: a text names an option of a group."""
    if isinstance(value, Path) or (isinstance(value, str) and key in PLAIN):
        yield f"{key}={to_text(str(value))}"
    elif isinstance(value, str):
        yield f"{key}={value}"
    else:
        yield from to_arguments(key, value)


def _reward_arguments(key: str, value: Any) -> Iterator[str]:
    """A Reward as a part; functions, or their paths, by path. Where this process alone has one, all run in it."""
    values = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, Reward) or not all(isinstance(one, str) or callable(one) for one in values):
        yield from _key_arguments(key, value)
        return
    paths = [one if isinstance(one, str) else objects.import_path(one) or objects.keep_function(one) for one in values]
    yield f"{key}={to_text(paths)}"
    if any(map(objects.is_kept, paths)):
        yield f"{key}.in_process=true"


_CONVERTERS: dict[str, Callable[[str, Any], Iterator[str]]] = {
    "reward": _reward_arguments,
    "task": task_arguments,
    "sim": sim_arguments,
}
