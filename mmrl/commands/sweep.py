"""Several runs through Hydra: `mmrl fit --multirun`.

The arguments are those of `mmrl fit`, with Hydra's own flags beside them; a value may be a sweep such as seed=0,1,2 or
policy=tiny_text,text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from mmrl.commands.fit_arguments import split_switches
from mmrl.commands.results.sweep_table import format_table, measure_job, read_jobs, stamp_jobs, write_job, write_table
from mmrl.config.compose import SHORT, finish, to_hydra_overrides, to_lightning
from mmrl.config.option_files import CONF, groups
from mmrl.config.overrides import quote
from mmrl.config.preflight import check_folder
from mmrl.config.short_names import search_path
from mmrl.core.errors import ConfigError, is_user_error
from mmrl.runs import child_process

_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd", "--experimental-rerun", "--info", "-i")
MANY = ("--multirun", "-m")
SWEEP_DIR = "hydra.sweep.dir="
MAXIMISE = {
    "optuna": "hydra.sweeper.direction=maximize",
    "ax": "hydra.sweeper.ax_config.experiment.minimize=false",
    "nevergrad": "hydra.sweeper.optim.maximize=true",
}
"""By plugin that searches: the argument that makes it maximise the objective; by default they minimise."""
_PLUGINS = {"sweeper": (*MAXIMISE,), "launcher": ("joblib", "ray", "rq", "submitit")}
_ONLY_SHOWS = {"--cfg", "-c", "--info", "-i", "--hydra-help", "--version"}


def run_sweep(arguments: Sequence[str], train: Callable[..., None]) -> None:
    """Run `mmrl fit` for every combination of the arguments' values, each in <run_dir>/<number>.

    Hydra's launcher runs them, one after the other by default; a job that fails ends the sweep. trust=true and
    overwrite=true are those of every run, and metric=NAME is the result of a run, by default the held-out mean of its
    first evaluator. A sweeper that searches, such as Optuna's, gets it as the objective, to be maximised unless the
    arguments say otherwise. The results of all runs are printed, and written into <run_dir>/results.csv.

    Args:
        arguments: of the command line.
        train: `mmrl.commands.fit.train`, which trains one run.

    Raises:
        ConfigError: the sweep has no run, or an argument cannot be used.
    """
    arguments, switches = split_switches(arguments)
    metric = next((argument.partition("=")[2] for argument in arguments if argument.startswith("metric=")), None)
    arguments = [argument for argument in arguments if not argument.startswith("metric=")]
    require_plugins(arguments)
    overrides = to_train_overrides(arguments)
    folder = next((Path(word.partition("=")[2].strip("'\"")) for word in overrides if word.startswith(SWEEP_DIR)), None)
    if folder is not None and not _ONLY_SHOWS.intersection(arguments):
        check_folder("run_dir", folder)
    earlier = {} if folder is None else stamp_jobs(folder)

    def run_job(cfg: DictConfig) -> float | None:
        return _run_job(cfg, switches, metric, train)

    before = sys.argv
    sys.argv = [before[0], *overrides]
    try:
        hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(run_job)()
    finally:
        sys.argv = before
        if folder is not None:
            results = read_jobs(folder, earlier)
            if results:
                print(f"{format_table(results)}\nresults: {write_table(results, folder)}", flush=True)
    if folder is not None and not results and not _ONLY_SHOWS.intersection(arguments):
        raise ConfigError("the sweep has no run: one of its values, such as range(3,3) or glob(NAME*), is empty")


def require_plugins(arguments: Sequence[str]) -> None:
    """Refuse a sweeper or launcher whose plugin is not installed, with the package that has it."""
    for kind, name in ((kind, name) for kind, names in _PLUGINS.items() for name in names):
        package = f"hydra-{name}-{kind}"
        place = Path("hydra_plugins", package.replace("-", "_"))
        if f"hydra/{kind}={name}" in arguments and not any(Path(folder, place).is_dir() for folder in sys.path):
            raise ConfigError(
                f"hydra/{kind}={name}: Hydra's plugin for it is not installed: pip install {package}; "
                f"hydra/{kind}=basic is there"
            )


def _run_job(
    cfg: DictConfig, switches: Mapping[str, bool], metric: str | None, train: Callable[..., None]
) -> float | None:
    about = HydraConfig.get()
    cfg.run_dir = job_folder(cfg.run_dir, about.sweep.dir, about.job.num)
    choices: Any = OmegaConf.to_container(about.runtime.choices)
    arguments = to_fit_arguments(about.overrides.task)
    print(f"run {about.job.num}: {' '.join(arguments)}", flush=True)
    searches = choices.get("hydra/sweeper") not in (None, "basic")
    with _job_errors(about.job.num, arguments):
        if searches and metric is None and cfg.data.get("evaluation") is None:
            raise ConfigError(
                f"hydra/sweeper={choices['hydra/sweeper']} searches for the best held-out mean, and evaluation=null "
                "measures none; choose an option of evaluation=..., or name an objective with metric=NAME"
            )
        current: Mapping[str, Any] = {}
        if (cfg.trainer.devices, cfg.trainer.get("num_nodes", 1)) != (1, 1):
            words = [word for word in arguments if not word.startswith("run_dir=")]
            _run_child([*words, *(f"{name}=true" for name, on in switches.items() if on)], cfg.run_dir)
        else:
            current = _train(to_lightning(finish(cfg, choices, arguments)), switches, train)
        result = measure_job(about.job.num, arguments, Path(cfg.run_dir), current, metric)
        if searches and result.value is None:
            raise ConfigError("the run has measured no held-out mean; name the objective with metric=NAME")
    write_job(result, Path(cfg.run_dir))
    return result.value


def _train(
    configuration: dict[str, Any], switches: Mapping[str, bool], train: Callable[..., None]
) -> Mapping[str, Any]:
    """Train in this process, and return the newest metrics."""
    from mmrl.commands.cli import CLI
    from mmrl.runs.signals import stop_request

    with stop_request() as request:
        cli = CLI(configuration, build=False)
        train(cli, request, **switches)
    return dict(cli.trainer.callback_metrics)


@contextmanager
def _job_errors(number: int, arguments: Sequence[str]) -> Iterator[None]:
    """End the sweep with one line where a job fails by an error of the user."""
    try:
        yield
    except Exception as error:
        if os.environ.get("MMRL_TRACEBACK") or not is_user_error(error):
            raise
        print(f"mmrl fit: run {number} ({' '.join(arguments)}): {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, ConfigError) else 1) from error


def _run_child(arguments: Sequence[str], folder: str) -> None:
    """Run a job of several processes in a process of its own, whose command line Lightning repeats for the others."""
    try:
        child_process.run([sys.executable, "-m", "mmrl", "fit", *arguments, f"run_dir={folder}"], os.environ)
    except subprocess.CalledProcessError as error:  # the child has said why
        raise SystemExit(error.returncode if error.returncode > 0 else 1) from error


def to_train_overrides(arguments: Sequence[str]) -> list[str]:
    """Arguments of `mmrl fit --multirun` as Hydra takes them: short keys spelled out, a folder for each job."""
    out = [search_path()]
    for argument in arguments:
        if _is_hydra_option(argument):
            out.append(argument)
            continue
        key, _, value = argument.partition("=")
        for choice in _choices(key, value):
            to_hydra_overrides([f"{key}={choice}"])  # refuses an unknown option, each of a sweep
        out.append(_spell_out(argument))
    folder = next((argument.partition("=")[2] for argument in arguments if argument.startswith("run_dir=")), None)
    if folder and "," in folder and folder[0] not in "'\"":
        raise ConfigError(f"run_dir={folder}: name one folder; each run has its own in it")
    return _add_hydra_defaults(out, folder or f"runs/sweep/{time.strftime('%Y%m%d-%H%M%S')}", arguments)


def to_fit_arguments(overrides: Sequence[str]) -> list[str]:
    """One job's overrides as a user would have typed them for `mmrl fit`."""
    out = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        value = "null" if override.startswith("~") else value
        full = sorted(SHORT.items(), key=lambda pair: -len(pair[1]))
        short = next((s + key.removeprefix(f) for s, f in full if key.startswith(f"{f}.")), key)
        out.append(f"{short}={value}")
    return out


def job_folder(given: str | None, sweep: str | None, number: int | None) -> str | None:
    """The folder of a job: its own below the sweep's; a single run keeps the folder that it was given."""
    return given if sweep is None else f"{sweep}/{number}"


def _is_hydra_option(argument: str) -> bool:
    if argument in _WITH_VALUE:
        raise ConfigError(f"write {argument} and its value as one argument, {argument}=VALUE")
    return argument.startswith(("-", "hydra.", "hydra/", "+hydra", "++hydra"))


def _choices(key: str, value: str) -> list[str]:
    """The options that a sweep over a group names; Hydra's functions, such as glob(*), are left to Hydra.

    Raises:
        ConfigError: glob of a key that is no group: Hydra would run nothing.
    """
    if key not in groups() and re.match(r"(sort|shuffle)?\(?\s*glob\(", value):
        raise ConfigError(f"{key}={value}: glob selects options of a group, as in recipe=glob(grpo*); name the values")
    if key not in groups() or "(" in value:
        return []
    return value.split(",")


def _spell_out(argument: str) -> str:
    """An argument as Hydra takes it: the full key, and quotes around texts that it would not parse."""
    key, _, value = argument.partition("=")
    if key not in groups():
        return _quote_each(to_hydra_overrides([argument])[0])
    if "null" not in _choices(key, value):
        return argument
    if value != "null":
        raise ConfigError(f"{argument}: null takes {key} out, and Hydra cannot sweep over it; start that run by itself")
    return f"~{key}"


def _quote_each(override: str) -> str:
    """Quote the texts of an override that Hydra would not parse, such as runs/lr=1e-4, each value of a sweep alone."""
    key, _, value = override.partition("=")
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        parts = (quote(f"{key}={part.strip()}") for part in value.split(","))
        return f"{key}=" + ",".join(part.partition("=")[2] for part in parts)
    return override


def _add_hydra_defaults(out: list[str], folder: str, arguments: Sequence[str]) -> list[str]:
    """Keep Hydra from creating folders of its own; the user's hydra.* options take precedence."""
    defaults = {
        "hydra.output_subdir": "null",
        "hydra.run.dir": ".",
        "hydra/job_logging": "none",
        "hydra/hydra_logging": "none",
    }
    if any(argument in MANY for argument in arguments):
        folder = quote(f"run_dir={folder}").partition("=")[2]
        defaults |= {"hydra.sweep.dir": folder, "hydra.sweep.subdir": "'${hydra:job.num}'"}
        sweeper = next((word.partition("=")[2] for word in arguments if word.startswith("hydra/sweeper=")), "")
        defaults |= dict([MAXIMISE[sweeper].split("=")] if sweeper in MAXIMISE else [])
    keys = {argument.partition("=")[0].lstrip("+") for argument in arguments}
    out = sorted(out, key=lambda word: not word.startswith("-"))  # Hydra's parser reads no flag between overrides
    return [*out, *(f"{key}={value}" for key, value in defaults.items() if key not in keys)]
