"""Arguments of the Hydra entry points `scripts/train.py` and `scripts/evaluate.py`, which start several runs.

The arguments are those of `mmrl fit` and `mmrl evaluate`, with Hydra's own flags beside them; with --multirun a value
may be a sweep such as seed=0,1,2 or policy=tiny_text,text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mmrl.config.compose import SHORT, groups, to_hydra_overrides
from mmrl.errors import ConfigError

_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd", "--experimental-rerun", "--info", "-i")
_MANY = ("--multirun", "-m")


def to_train_overrides(arguments: Sequence[str]) -> list[str]:
    """Arguments of `scripts/train.py` as Hydra takes them: short keys spelled out, a folder for each job."""
    out = []
    for argument in arguments:
        if _is_hydra_option(argument):
            out.append(argument)
            continue
        key, _, value = argument.partition("=")
        for choice in _choices(key, value):
            to_hydra_overrides([f"{key}={choice}"])  # refuses an unknown option, each of a sweep
        out.append(_spell_out(argument))
    folder = next((argument.partition("=")[2] for argument in arguments if argument.startswith("run_dir=")), None)
    return _add_hydra_defaults(out, folder or f"runs/sweep/{time.strftime('%Y%m%d-%H%M%S')}", arguments)


def to_evaluate_overrides(arguments: Sequence[str]) -> list[str]:
    """Arguments of `scripts/evaluate.py` as Hydra takes them: run=FOLDER, the options, and keys of the run."""
    out = []
    for argument in arguments:
        is_hydra_option = _is_hydra_option(argument) or "=" not in argument
        out.append(argument if is_hydra_option or not argument.partition("=")[0].partition(".")[2] else f"++{argument}")
    return _add_hydra_defaults(out, f"runs/sweep/{time.strftime('%Y%m%d-%H%M%S')}", arguments)


def to_fit_arguments(overrides: Sequence[str]) -> list[str]:
    """One job's overrides as a user would have typed them for `mmrl fit`."""
    out = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        full = sorted(SHORT.items(), key=lambda pair: -len(pair[1]))
        short = next((s + key.removeprefix(f) for s, f in full if key.startswith(f"{f}.")), key)
        out.append(f"{short}={value}")
    return out


def job_folder(given: str | None, sweep: str | None, number: int | None) -> str | None:
    """The folder of a job: its own below the sweep's; a single run keeps the folder that it was given."""
    return given if sweep is None else f"{sweep}/{number}"


def to_evaluate_arguments(cfg: DictConfig) -> list[str]:
    """A composed evaluation as arguments of `mmrl evaluate`: nested keys with dots, what is null left out."""
    flat = _flatten(OmegaConf.to_container(cfg, resolve=True), "")  # type: ignore[arg-type]
    run = flat.pop("run")
    return [str(run), *(f"{key}={_format_value(value)}" for key, value in flat.items() if value is not None)]


def _flatten(node: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in node.items():
        out |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_hydra_option(argument: str) -> bool:
    if argument in _WITH_VALUE:
        raise ConfigError(f"write {argument} and its value as one argument, {argument}=VALUE")
    return argument.startswith(("-", "hydra.", "hydra/", "+hydra", "++hydra"))


def _choices(key: str, value: str) -> list[str]:
    """The options that a sweep over a group names; Hydra's functions, such as glob(*), are left to Hydra."""
    if key not in groups() or "(" in value:
        return []
    return value.split(",")


def _spell_out(argument: str) -> str:
    key, _, _ = argument.partition("=")
    return argument if key in groups() else to_hydra_overrides([argument])[0]


def _add_hydra_defaults(out: list[str], folder: str, arguments: Sequence[str]) -> list[str]:
    """Keep Hydra from creating folders of its own; the user's hydra.* options take precedence."""
    defaults = {"hydra.output_subdir": "null", "hydra.run.dir": ".", "hydra/job_logging": "none"}
    if any(argument in _MANY for argument in arguments):
        defaults |= {"hydra.sweep.dir": folder, "hydra.sweep.subdir": "'${hydra:job.num}'"}
    given = {argument.partition("=")[0].lstrip("+") for argument in arguments}
    return [*out, *(f"{key}={value}" for key, value in defaults.items() if key not in given)]
