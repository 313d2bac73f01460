"""Parameters of the classes of import paths, options that every simulator takes, and sizes that a simulator states."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from mmrl.core.errors import ConfigError

_WORKERS = "sims.workers.WorkerSim"
"""Wraps a simulator, so that all simulators have its options without declaring them."""
_OPTIONS = ("workers", "timeout_s")
_TASK = "sims.task.SimTask"
_STORED = "sims.states.StoredStateTask"
"""The task of a simulator that has stored initial states."""


logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # it prints what cannot be imported, beside our message


def import_class(path: str | None) -> Any:
    """Import the class of a `_target_`; None if it cannot be imported."""
    try:
        return get_class(path) if path else None
    except Exception:  # the typed parser reports it with a better message
        return None


def constructor_parameters(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor by name; in place of **kwargs are the parameters of the base class.

    A constructor that takes any name, and passes them to no class that lists them, keeps its **kwargs. The
    parameters of a function, which a configuration may name by mistake, are its own.
    """
    if not isinstance(part, type):
        return dict(inspect.signature(part).parameters)
    parameters: dict[str, inspect.Parameter] = {}
    for base in (each for each in part.__mro__ if "__init__" in vars(each) and each is not object):
        signature = list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        parameters |= {parameter.name: parameter for parameter in signature if parameter.name not in parameters}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
            variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            return {name: parameter for name, parameter in parameters.items() if parameter.kind not in variadic}
    return parameters


def split_workers(sim: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a simulator's node into its own arguments and those of its processes.

    Args:
        sim: {_target_, argument: value}.
    """
    kind = import_class(sim.get("_target_"))
    parameters = constructor_parameters(kind) if isinstance(kind, type) else {}
    options = {name: sim[name] for name in _OPTIONS if name in sim and name not in parameters}
    if not options.get("workers"):  # 0 steps in this process; a time limit alone stays, and is refused by the parser
        options = {"workers": options["workers"]} if "workers" in options else {}
    return {name: value for name, value in sim.items() if name not in options}, options


def spread_sim(data: dict[str, Any]) -> None:
    """Wrap the simulator of a data module with sim.workers=N above 0, in place.

    Args:
        data: {task: {sim: ...}, rollout: ...}, nodes with `_target_`, without interpolations.

    Raises:
        ConfigError: there are fewer environments than processes.
    """
    task = data.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("sim"), dict):
        return
    sim, options = split_workers(task["sim"])
    rollout = data.get("rollout") or {}
    workers = task["sim"].get("workers")
    for name in ("num_envs", "max_envs"):
        if isinstance(workers, int) and isinstance(rollout.get(name), int) and workers > rollout[name]:
            raise ConfigError(
                f"sim.workers={workers}: rollout.{name}={rollout[name]} environments occupy at most so many processes"
            )
    task["sim"] = {"_target_": _WORKERS, **options, "sim": sim} if options.get("workers") else sim


def choose_state_task(data: dict[str, Any]) -> None:
    """Pose the stored initial states of a simulator that may have some, instead of drawing them, in place.

    Args:
        data: {task: {_target_, sim: ...}}, nodes with `_target_`, without interpolations.
    """
    task = data.get("task")
    if not isinstance(task, dict) or task.get("_target_") != _TASK or not isinstance(task.get("sim"), dict):
        return
    if hasattr(import_class(task["sim"].get("_target_")), "stored_states"):
        task["_target_"] = _STORED


def pass_workers(config: Mapping[str, Any], arguments: Sequence[str]) -> list[str]:
    """Point LightningCLI arguments of a simulator at the one inside, where a run's configuration spreads it.

    Args:
        config: of the run, its parts as {class_path, init_args}.
        arguments: --data.task.sim.KEY=VALUE is that of the simulator, except the options of its processes.
    """
    node: Any = config
    for name in ("data", "task", "sim"):
        node = (node.get(name) or {}) if isinstance(node, Mapping) else {}
        kind = node.get("class_path") if isinstance(node, Mapping) else None
        node = node.get("init_args") or {} if kind else node
    prefix = "--data.task.sim."
    prefixes = tuple(f"{prefix}{name}=" for name in _OPTIONS)
    return [
        f"{prefix}sim.{argument.removeprefix(prefix)}"
        if kind == _WORKERS and argument.startswith(prefix) and not argument.startswith(prefixes)
        else argument
        for argument in arguments
    ]


def pass_nulls(config: Mapping[str, Any], arguments: Sequence[str]) -> list[str]:
    """Write LightningCLI arguments KEY=null of parts as mappings, of which the parser keeps the null.

    Of --data.task.sim.KEY=null it would make the text "None", or refuse None where a part may be without a number.

    Args:
        config: of the run, its parts as {class_path, init_args}.
        arguments: of LightningCLI.
    """
    return [_nest_null(config, argument) if argument.endswith(("=null", "=~")) else argument for argument in arguments]


def _nest_null(config: Mapping[str, Any], argument: str) -> str:
    path: list[str] = []
    node: Any = config
    for name in argument.removeprefix("--").rpartition("=")[0].split("."):
        if isinstance(node, Mapping) and "class_path" in node and name not in node:
            path, node = [*path, "init_args"], node.get("init_args")
        path, node = [*path, name], node.get(name) if isinstance(node, Mapping) else None
    if "init_args" not in path[1:]:
        return argument
    nested: Any = None
    for name in reversed(path[1:]):
        nested = {name: nested}
    return f"--{path[0]}={json.dumps(nested)}"


_NO_DEFAULT = "no default"


def read_sim_size(name: str, default: Any = _NO_DEFAULT, *, _root_: DictConfig) -> Any:
    """Resolve ${sim:action_dims}: the simulator's value for that argument of a policy.

    ${sim:image_size,null} is null with a simulator that does not state it.
    """
    node = OmegaConf.select(_root_, "data.task.sim")
    if node is None and hasattr(import_class(OmegaConf.select(_root_, "data.task._target_")), "sizes"):
        node = _root_.data.task  # a task that gives the sizes without a simulator
    if node is None and default != _NO_DEFAULT:
        return default
    if node is None:
        raise ConfigError(f"policy.{name} comes from a simulator and there is none: name one with sim=..., or set it")
    plain: Any = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    plain, _ = split_workers(plain)
    sizes = _sizes(json.dumps(plain, sort_keys=True))
    if name not in sizes and default != _NO_DEFAULT:
        return default
    if name not in sizes:
        raise ConfigError(f"{plain['_target_']} does not state policy.{name} (it states {sorted(sizes)}): set it")
    return sizes[name]


def read_processor(
    path: str, action: str = "quantile", vectors: str = "mean_std", unscaled_dims: Sequence[int] = ()
) -> Any:
    """Resolve ${normalised:FOLDER}: a policy.processor from the statistics of a dataset."""
    from mmrl.datasets.processor_of_dataset import build_processor

    return build_processor(path, action, vectors, unscaled_dims)  # type: ignore[arg-type]


def read_real_actions(*, _root_: DictConfig) -> Any:
    """Resolve ${real_actions:}: as ${sim:actions}, for policies of real numbers."""
    if read_sim_size("kind", None, _root_=_root_) not in (None, "gaussian"):
        sim = OmegaConf.select(_root_, "data.task.sim")
        place = f"task.path={OmegaConf.select(_root_, 'data.task.path')}" if sim is None else f"sim.id={sim.get('id')}"
        raise ConfigError(
            f"{place}: its actions are numbered, and this recipe's policy gives real numbers; use "
            + ("a recording of real ones" if sim is None else "recipe=ppo_control (policy=control)")
        )
    return read_sim_size("actions", _root_=_root_)


def read_numbered_actions(*, _root_: DictConfig) -> Any:
    """Resolve ${numbered_actions:}: as ${sim:actions}, for policies that value each action."""
    kind = read_sim_size("kind", None, _root_=_root_)
    if kind not in (None, "categorical"):
        sim = OmegaConf.select(_root_, "data.task.sim")
        forms = {"gaussian": "are real numbers", "multi_categorical": "are several numbers"}
        raise ConfigError(
            f"sim.id={sim.get('id')}: its actions {forms.get(kind, kind)}, and this recipe's policy values one number "
            "of a few; use recipe=ppo_control (policy=control)"
        )
    return read_sim_size("actions", _root_=_root_)


@functools.cache
def _sizes(sim: str) -> dict[str, Any]:
    node = json.loads(sim)
    place = f"data.task.sim ({node['_target_']})"
    try:
        simulator = instantiate(node)
    except Exception as error:  # Hydra wraps the simulator's error
        raise ConfigError(f"{place}: {' '.join(str(error.__cause__ or error).split())}") from error
    try:
        return simulator.sizes()
    except Exception as error:
        raise ConfigError(f"{place}: {' '.join(str(error).split())}") from error


NAMED_PARTS = (
    *("callbacks", "logger", "stages", "annotators", "transforms", "rows", "terms", "phases", "models"),
    *("evaluators", _DECODES := "sampling", "weights", "statistics", "auxiliary_models", "frozen_models"),
)
"""Dictionaries of named parts: a recipe takes one out by setting it to null."""


def _holds_parts(node: dict[str, Any]) -> bool:
    """Whether all values are mappings or null: the decodes of an evaluation, not the numbers of one decode."""
    return all(value is None or isinstance(value, dict) for value in node.values())


def to_class_path(node: Any) -> Any:
    """Convert Hydra's {_target_: C, a: 1} to jsonargparse's {class_path: C, init_args: {a: 1}}, recursively."""
    if isinstance(node, list):
        return [to_class_path(item) for item in node]
    if not isinstance(node, dict):
        return node
    inner = {key: to_class_path(value) for key, value in node.items() if key != "_target_"}
    for key in NAMED_PARTS:
        if isinstance(inner.get(key), dict) and (key != _DECODES or _holds_parts(inner[key])):
            inner[key] = {name: part for name, part in inner[key].items() if part is not None}
    if "_target_" not in node:
        return inner
    if not isinstance(node["_target_"], str):
        raise ConfigError(f"_target_={node['_target_']!r}: must be a class's import path, as in torch.optim.AdamW")
    return {"class_path": node["_target_"], "init_args": inner}
