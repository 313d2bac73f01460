"""Compose configurations with Hydra, and convert them for LightningCLI, which checks types and builds the objects.

`mmrl fit recipe=grpo policy.path=...` takes Hydra overrides, `mmrl fit --config run/config.yaml` uses LightningCLI
alone. Both build the same classes, and the second reads the file that the first writes.
"""

from __future__ import annotations

import difflib
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from mmrl.config.code.packages import check_packages, drop_missing_logger
from mmrl.config.layers.files import LAYERS, RUNS
from mmrl.config.layers.settings import Setting, choose_setting, drop_headers
from mmrl.config.option_files import CONF as CONF
from mmrl.config.option_files import OptionFile, find_options, groups, read_package
from mmrl.config.overrides import (
    check_argument,
    check_effect,
    check_removed,
    compose_overrides,
    drop_leftovers,
    quote,
    removed_parts,
)
from mmrl.config.paths import resolve_tool_functions
from mmrl.config.renamed import check_argument_names, check_names, check_words, find_new_option
from mmrl.config.reward_functions import KEY as REWARD
from mmrl.config.reward_functions import replace_reward
from mmrl.config.signatures import (
    NAMED_PARTS,
    choose_state_task,
    import_class,
    read_numbered_actions,
    read_processor,
    read_real_actions,
    read_sim_size,
    spread_sim,
    to_class_path,
)
from mmrl.core.errors import ConfigError
from mmrl.schedules.extraction import extract_schedules

SHORT = {
    "policy": "model.policy",
    "teacher": "model.frozen_models.teacher",
    "objective": "model.objective",
    "optimizer": "model.optimizer",
    "scheduler": "model.scheduler",
    "strategy": "trainer.strategy",
    "task": "data.task",
    "sim": "data.task.sim",
    "engine": "data.engine",
    "rollout": "data.rollout",
    "reward": "data.reward",
    "curriculum": "data.curriculum",
    "weighting": "data.weighting",
    "sampling": "data.sampling",
    "evaluation": "data.evaluation",
}
"""The full key of each short one: `policy.path` is `model.policy.path`."""


def _product(*factors: Any) -> int:
    """Resolve ${product:a,b}: a product of integers, such as the number of optimiser steps of a run."""
    if any(isinstance(factor, bool) or not isinstance(factor, int) for factor in factors):
        raise ConfigError(f"it is the product of {list(map(str, factors))}, and each must be a whole number (int)")
    return math.prod(factors)


def _choose_captured(yes: str, no: str, *, _root_: DictConfig) -> str:
    """Resolve ${captured:A,B}: class A, a subclass of B, if capture=true, else class B."""
    if not isinstance(_root_.get("capture", False), bool):
        raise ConfigError(f"capture={_root_.capture}: must be true or false")
    return yes if _root_.get("capture", False) else no


def _choose_precision(*, _root_: DictConfig) -> str:
    """Resolve ${precision:}: mixed bfloat16 on a GPU, 32 bits on a CPU."""
    import torch

    accelerator = OmegaConf.select(_root_, "trainer.accelerator")
    return "bf16-mixed" if accelerator != "cpu" and torch.cuda.is_available() else "32-true"


OmegaConf.register_new_resolver("precision", _choose_precision, replace=True)
OmegaConf.register_new_resolver("product", _product, replace=True)
OmegaConf.register_new_resolver("captured", _choose_captured, replace=True)


OmegaConf.register_new_resolver("sim", read_sim_size, replace=True)
OmegaConf.register_new_resolver("real_actions", read_real_actions, replace=True)
OmegaConf.register_new_resolver("numbered_actions", read_numbered_actions, replace=True)
OmegaConf.register_new_resolver("normalised", read_processor, replace=True)

SHARED = ("task", "sim", "policy")
"""Slots that a warm-start stage takes over from the run that it prepares."""
_SHARED_KEYS = (
    "capture=",
    *(key for slot in SHARED for key in (f"{slot}.", f"{SHORT[slot]}.", f"{SHORT[slot]}=null")),
)

PLAIN = ("seed", "capture", "run_dir", "ckpt_path")
ROOTS = ("trainer", "model", "data")
_NAMED_BY_LIGHTNING = ("trainer.strategy",)  # a key of a group that takes a registered name too
_MANY = 50  # more options than this are not listed in an error
NEEDED = ("trainer", "learner", "data")
"""Groups that no run can do without; what a learner or a data module needs, the typed parser knows."""


def to_hydra_overrides(arguments: Sequence[str]) -> list[str]:
    """Convert arguments to Hydra overrides: short prefixes are expanded, new keys are allowed.

    Unknown keys are refused here or by the typed parser, so Hydra need not check that a key exists.
    """
    options = find_options()
    out = [] if names_recipe(arguments) else ["~recipe"]
    for argument in arguments:
        check_argument(argument)
        key, _, value = argument.lstrip("+~").partition("=")
        # an option of a group, a key with a short prefix, a key in full
        head, _, rest = key.partition(".")
        if not rest and key in options:
            if value not in options[key] and (new := find_new_option(key, value)):
                raise ConfigError(f"{key}={value} was renamed to {new}")
            if value not in options[key] and (value != "null" or key in NEEDED):
                near = _suggest(value, options[key]) or _list_options(key, sorted(options[key]))
                raise ConfigError(f"{key}={value}: no such {key}.{near}; `mmrl list {key}` says what each is")
            out.append(f"~{key}" if value == "null" else f"{key}={options[key][value].name}")
        elif rest and _is_option(options, f"{SHORT.get(head, head)}.{rest}", value):
            group = key.rpartition(".")[2]
            raise ConfigError(f"{argument}: {value} is an option of a group, which is named alone: {group}={value}")
        elif rest and head in SHORT:
            out.append(f"++{SHORT[head]}.{rest}={value}")
        elif key in PLAIN or key == REWARD or (rest and head in ROOTS):
            out.append(f"++{key}={value}")
        elif key in SHORT or key in ROOTS:
            raise ConfigError(f"{key}={value}: {key!r} has no named options; set its keys, as in {key}.KEY=VALUE")
        else:
            keys = sorted({*PLAIN, *ROOTS, *SHORT, *options})
            raise ConfigError(f"{key}: unknown key.{_suggest(head, keys)} Top-level keys are {', '.join(keys)}")
    return out


def _is_option(options: Mapping[str, Mapping[str, OptionFile]], key: str, value: str) -> bool:
    """Whether a value is the name of an option whose file fills this key, as arithmetic does data.task."""
    option = options.get(key.rpartition(".")[2], {}).get(value)
    return option is not None and read_package(option.path) == key and key not in _NAMED_BY_LIGHTNING


def names_recipe(arguments: Sequence[str]) -> bool:
    """Whether a recipe runs: one that is named, or the default one where no method, setting or start is named."""
    keys = {argument.partition("=")[0].lstrip("+~") for argument in arguments}
    return "recipe" in keys or not keys & set(LAYERS)


def compose(arguments: Sequence[str], setting: Setting | None = None) -> DictConfig:
    """Compose conf/ with the arguments, and name the run folder; parts are still Hydra's `_target_` nodes.

    `setting` is what `choose_setting` makes of the arguments; None asks it.
    """
    setting = setting or choose_setting(arguments)
    arguments = setting.words
    try:
        overrides = [quote(override) for override in to_hydra_overrides(arguments)]
        cfg = compose_overrides(overrides, setting.values)
        check_effect(cfg, overrides)
        removed = removed_parts(overrides, NAMED_PARTS)
        rest = [override for override in overrides if override.lstrip("+~").partition("=")[0] not in removed]
        without = compose_overrides(rest, setting.values) if removed else cfg
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error).strip()) from error
    choices: Any = OmegaConf.to_container(cfg.hydra.runtime.choices)
    composed = finish(cfg, choices, arguments)  # refuses renamed keys, by their present names
    check_removed(overrides, without, NAMED_PARTS)
    return composed


def finish(cfg: DictConfig, choices: Mapping[str, Any], arguments: Sequence[str]) -> DictConfig:
    """Remove Hydra's section, refuse renamed keys, name the run folder, add shared arguments to warm-start stages."""
    options = {group: choices[group].rpartition("/")[2] for group in groups() if choices.get(group)}
    plain: Any = OmegaConf.to_container(cfg, resolve=False)
    drop_headers(plain)
    cfg = OmegaConf.create({name: node for name, node in plain.items() if name != "hydra"})
    drop_leftovers(cfg, to_hydra_overrides(arguments), options, import_class, SHORT)
    values: Any = OmegaConf.to_container(cfg, resolve=False)
    check_argument_names(values, arguments, SHORT)
    check_names(values)
    check_words(values)
    replace_reward(cfg, arguments)
    resolve_tool_functions(cfg)
    cfg.choices = options
    if cfg.get("run_dir") is None:
        name = next(filter(None, map(options.get, (*RUNS, "method"))), "run")
        cfg.run_dir = f"runs/{name}/{_start_time()}"
    drop_missing_logger(cfg, arguments)
    start = OmegaConf.select(cfg, "trainer.callbacks.warm_start")
    if start is not None:
        start.common = [f"{group}={options[group]}" for group in SHARED if group in options]
        start.common += [argument for argument in arguments if argument.lstrip("+").startswith(_SHARED_KEYS)]
        start.common.append(f"seed={cfg.seed}")
    return cfg


def _start_time() -> str:
    """Return the time for a run's folder name, the same in all processes that Lightning launches for the run."""
    if "LOCAL_RANK" not in os.environ:
        os.environ["MMRL_STARTED"] = time.strftime("%Y%m%d-%H%M%S")
    elif "MMRL_STARTED" not in os.environ:
        raise ConfigError("run_dir: name the folder of the run when another program launches its processes")
    return os.environ["MMRL_STARTED"]


def to_lightning(cfg: DictConfig) -> dict[str, Any]:
    """Convert the composed configuration to the nested dictionary that LightningCLI reads."""
    check_packages(OmegaConf.to_container(cfg, resolve=False))  # type: ignore[arg-type]  # resolvers import classes
    try:
        plain: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} is missing: give it as {_short(str(error.full_key))}=...") from error
    except OmegaConfBaseException as error:
        raise ConfigError(_explain_interpolation(cfg, error)) from error
    except RecursionError as error:
        raise ConfigError("an interpolation ${...} refers to itself; replace it by a value") from error
    unknown = sorted(set(plain) - {*PLAIN, *ROOTS, "choices", "paper"})
    if unknown:
        raise ConfigError(f"unknown top-level keys {unknown}; they must be under trainer, model or data")
    for key in ("run_dir", "ckpt_path"):
        if plain.get(key) is not None and not isinstance(plain[key], str):
            plain[key] = _text(key, plain[key])
    choose_state_task(plain["data"])
    spread_sim(plain["data"])
    out = {root: to_class_path(plain[root]) for root in ROOTS}
    for name in ("callbacks", "logger"):  # named in conf/, so that each can be overridden; Lightning takes a list
        parts = out["trainer"].get(name)
        if isinstance(parts, dict) and "class_path" not in parts:
            if empty := [key for key, part in parts.items() if part == {}]:
                raise ConfigError(
                    f"trainer.{name}.{empty[0]}={{}} is no part: name its class in _target_, or take it out with null"
                )
            out["trainer"][name] = list(parts.values())
    extract_schedules(out)
    return {
        "seed_everything": plain["seed"],
        "run_dir": plain["run_dir"],
        "project": os.getcwd(),
        "recipe": plain["choices"].get("recipe"),
        "method": plain["choices"].get("method"),
        "ckpt_path": plain.get("ckpt_path"),
        **out,
    }


def _text(key: str, value: Any) -> str:
    """Convert a name to text: numbers are converted, lists and mappings refused."""
    if isinstance(value, (list, dict)):
        raise ConfigError(f"{key} must be a text, got {value}; put it in quotes if it is meant as a name")
    return str(value)


def _explain_interpolation(cfg: DictConfig, error: OmegaConfBaseException) -> str:
    """Format the error of an interpolation: key, expression and cause; messages of mmrl's resolvers are kept."""
    text = str(error).strip()
    message = text.removeprefix("ConfigError raised while resolving interpolation: ")
    key = str(error.full_key or "")
    raw: Any = OmegaConf.to_container(cfg, resolve=False)
    for part in key.replace("[", ".").replace("]", "").split("."):
        raw = raw.get(part) if isinstance(raw, dict) else None
    if message != text and "${product" not in str(raw):
        return message.splitlines()[0]
    cause = message.splitlines()[0].removeprefix("InterpolationResolutionError raised while resolving interpolation: ")
    return f"{_short(key)}={raw} cannot be computed: {cause}; write a value in its place"


def _short(key: str) -> str:
    """Shorten a full key to the form of the command line: model.policy.path to policy.path."""
    for short, full in sorted(SHORT.items(), key=lambda pair: -len(pair[1])):
        if key == full or key.startswith(f"{full}."):
            return short + key.removeprefix(full)
    return key


def _list_options(group: str, names: Sequence[str]) -> str:
    """Name the options of a group, as long as a reader would look through them."""
    return f" {group} can be {names}" if len(names) <= _MANY else f" There are {len(names)}"


def _suggest(argument: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(argument, names, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
