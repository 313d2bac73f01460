"""`mmrl fit`: train a policy."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from mmrl.callbacks.progress import format_stage
from mmrl.commands.cli import CLI
from mmrl.commands.fit_arguments import check_dashed, split_switches
from mmrl.commands.sweep import MANY, run_sweep
from mmrl.config.code.packages import lacks_logger
from mmrl.config.compose import compose, groups, to_hydra_overrides, to_lightning
from mmrl.config.layers.settings import choose_setting
from mmrl.config.overrides import check_groups
from mmrl.config.renamed import check_words
from mmrl.core.errors import ConfigError
from mmrl.core.installation.optional_packages import format_install
from mmrl.distributed.first_process import is_first_process
from mmrl.files.atomic import FULL
from mmrl.runs.closed_output import drop_closed_output
from mmrl.runs.early_end import format_early_end
from mmrl.runs.run_folder import checkpoints_of, claim_folder, own_folder, resume_command
from mmrl.runs.signals import StopAfterIteration, StopRequest, stop_request
from mmrl.runs.writable import writable


def fit(arguments: Sequence[str], check: Callable[[DictConfig], None] | None = None) -> Path | None:
    """Train by Hydra overrides (key=value) or LightningCLI arguments (--key value), and return the run's folder.

    --print_config prints the resolved file instead, --multirun starts several runs: then there is no folder.

    Args:
        arguments: of the command line.
        check: refuses a composed configuration before it is parsed.
    """
    if {"-h", "--help"} & set(arguments):
        CLI(["--help"], build=False)  # prints LightningCLI's options and exits
    if set(MANY) & set(arguments):
        run_sweep(arguments, train)
        return None
    only_print = "--print_config" in arguments
    arguments, switches = split_switches([argument for argument in arguments if argument != "--print_config"])
    dashed = any(argument.startswith("--") for argument in arguments)
    if dashed and any(
        not w.startswith("--") and "=" in w and not _value_of(arguments, i) for i, w in enumerate(arguments)
    ):
        raise ConfigError(
            "give either Hydra overrides (key=value) or LightningCLI arguments (--key value), not both; several runs "
            "at once are mmrl fit --multirun key=a,b"
        )
    if dashed:
        check_dashed(arguments, switches["trust"])
        arguments += _folder_of_resumed(arguments)
    else:
        to_hydra_overrides(arguments)  # an unknown option is reported before one that is given twice
        check_groups(arguments, groups())
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # hints about loggers and devices
    with drop_closed_output(), stop_request() as request:
        cli = _parse(arguments if dashed else _compose(arguments, check, only_print))
        if dashed and not cli.config.ckpt_path:
            check_words(cli.config.as_dict())  # of stages, which a run that resumes skips
        if dashed:
            cli.move_outputs(_run_dirs(arguments))
        if only_print:
            print(cli.to_yaml(), end="")
            return None
        train(cli, request, **switches)
        return Path(cli.config.run_dir)


def _parse(arguments: Sequence[str] | dict[str, Any]) -> CLI:
    """Parse and check; an empty folder that was made for the run is removed where this fails."""
    try:
        return CLI(arguments, build=False)
    except BaseException:
        if isinstance(arguments, dict) and _is_claimed(arguments["run_dir"]):
            with contextlib.suppress(OSError):
                Path(arguments["run_dir"]).rmdir()
        raise


def _is_claimed(run_dir: str) -> bool:
    """Whether the folder has the name that this command made for its run."""
    return Path(run_dir).name == os.environ.get("MMRL_STARTED")


def _compose(arguments: Sequence[str], check: Callable[[DictConfig], None] | None, only_print: bool) -> dict[str, Any]:
    setting = choose_setting(arguments)
    if setting.line and is_first_process():
        print(f"# {setting.line}", flush=True)
    if lacks_logger(arguments) and is_first_process() and not format_stage():  # a stage's run has said it
        print(f"# metrics go to metrics.csv alone; {format_install('tensorboard')} adds TensorBoard", flush=True)
    cfg = compose(arguments, setting)
    if name := cfg.choices.get("benchmark"):
        raise ConfigError(
            f"benchmark={name} leaves no problem to train on: mmrl evaluate benchmark={name} measures a policy, and "
            f"task={cfg.choices.task} trains on problems of that kind"
        )
    if check is not None:
        check(cfg)
    folder, started = Path(str(cfg.run_dir)), os.environ.get("MMRL_STARTED")
    if only_print or not is_first_process() or folder.name != started:
        return to_lightning(cfg)  # the user named the folder
    with writable(folder, "run_dir"):
        folder = claim_folder(folder)
    os.environ["MMRL_STARTED"], cfg.run_dir = folder.name, str(folder)
    try:
        return to_lightning(cfg)
    except BaseException:
        folder.rmdir()
        raise


def train(cli: CLI, request: StopRequest, trust: bool = False, overwrite: bool = False) -> None:
    """Train in a folder that this run owns, until its last iteration or a signal.

    Args:
        cli: parsed and checked; its parts are built here.
        request: of the signals that end the run.
        trust: load pickled objects from checkpoints too.
        overwrite: remove the results of a run that is in the folder.
    """
    first = is_first_process()  # the other processes of the run follow it
    run_dir, ckpt_path = cli.config.run_dir, cli.config.ckpt_path
    with own_folder(run_dir, ckpt_path, overwrite, _is_claimed(run_dir)) if first else nullcontext():
        _run(cli, request, trust, first)


def _run(cli: CLI, request: StopRequest, trust: bool, first: bool) -> None:
    run_dir = Path(cli.config.run_dir)
    try:
        cli.build()
        cli.trainer.callbacks.append(StopAfterIteration(request, run_dir))  # type: ignore[attr-defined]
        cli.fit(trust)
    except SystemExit:
        if request.number is not None and first:
            print(_format_stop(request, cli, trust), file=sys.stderr)
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise ConfigError(
            f"{error.filename or run_dir}: {error.strerror}; make room, then {_format_resume_hint(run_dir, trust)}"
        ) from error
    if cli.trainer.is_global_zero:
        for text in filter(None, (format_early_end(cli.trainer), format_nothing_learned(cli.datamodule))):
            print(f"{format_stage()}{text}", flush=True)
        print(f"run folder: {run_dir}")


def format_nothing_learned(data: Any) -> str:
    """Say that no iteration had a row to learn from, so that the weights are those of the start; else empty."""
    empty = getattr(data, "empty", None)
    if empty is None or not data.iteration or empty.count < data.iteration:
        return ""
    return "nothing was learned: no iteration left an episode to learn from, and the weights are those of the start"


def _format_stop(request: StopRequest, cli: CLI, trust: bool) -> str:
    name = signal.Signals(request.number or signal.SIGTERM).name
    if format_stage():  # the run that the stage belongs to says how to go on
        return f"mmrl fit: {format_stage()}stopped by {name}"
    run_dir, data = Path(cli.config.run_dir), getattr(cli, "datamodule", None)
    line = f"mmrl fit: stopped by {name}; {_format_resume_hint(run_dir, trust)}"
    if getattr(data, "is_measured", True) or not checkpoints_of(run_dir):
        return line
    command = shlex.join(["mmrl", "evaluate", str(run_dir), *(["trust=true"] if trust else [])])
    return f"{line}\nmmrl fit: the weights of this checkpoint are not evaluated; evaluate them with: {command}"


def _format_resume_hint(run_dir: Path, trust: bool) -> str:
    """The command that resumes the run."""
    if not checkpoints_of(run_dir):
        return "there is no checkpoint yet, the same command begins the run again"
    return f"resume with: {shlex.join(shlex.split(resume_command(run_dir)))}{' trust=true' if trust else ''}"


def _folder_of_resumed(arguments: Sequence[str]) -> list[str]:
    """--run_dir of a run that is resumed: where its files are, seen from this folder."""
    folders = [str(Path(file).parent) for file in _values(arguments, "--config")]
    checkpoints = _values(arguments, "--ckpt_path")
    if len(folders) != 1 or not checkpoints or _values(arguments, "--run_dir"):
        return []
    inside = Path(folders[0]).resolve() in Path(checkpoints[-1]).resolve().parents
    return ["--run_dir", *folders] if inside and Path(folders[0], "config.yaml").is_file() else []


def _values(arguments: Sequence[str], option: str) -> list[str]:
    values = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{option}=")]
    return values + [after for argument, after in pairwise(arguments) if argument == option]


def _run_dirs(arguments: Sequence[str]) -> list[str]:
    """The run folders that the configuration files among the arguments name."""
    files = _values(arguments, "--config")
    configs = [yaml.safe_load(Path(file).read_text()) for file in files if Path(file).is_file()]
    return [config["run_dir"] for config in configs if isinstance(config, dict) and config.get("run_dir")]


def _value_of(arguments: Sequence[str], i: int) -> bool:
    """Whether argument i is the value of the option before it."""
    return i > 0 and arguments[i - 1].startswith("--") and "=" not in arguments[i - 1]
