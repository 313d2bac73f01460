"""Relative paths of a configuration, made absolute so that a run can be resumed or measured from another folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from omegaconf import DictConfig, ListConfig, OmegaConf

from mmrl.core.errors import ConfigError
from mmrl.core.function_path import resolve_path

FUNCTIONS = "rollout.functions"
AGENT = "rollout.agent"
INPUTS = ("path", "held_out_path", "image_folder")
"""Arguments of tasks, rollouts and policies that name a file or folder to read."""
OUTPUTS = ("run_dir", "save_dir", "dirpath", "default_root_dir", "logs", "path")
"""Arguments that name where something is written; `path` is that of logged episodes, which stand in the run folder."""


def resolve_inputs(node: Any, run_dir: str) -> None:
    """Make the relative paths that exist in the working directory absolute; a name that is no path there stays.

    Args:
        node: of the parsed configuration; changed in place.
        run_dir: folder of the run, whose own files are found wherever it is.
    """
    pairs = enumerate(node) if isinstance(node, list) else vars(node).items() if isinstance(node, Namespace) else ()
    pairs = node.items() if isinstance(node, dict) else pairs
    for key, value in list(pairs):
        if key in INPUTS and isinstance(value, str) and _exists(value) and not value.startswith(run_dir):
            node[key] = str(Path(value).absolute())
        else:
            resolve_inputs(value, run_dir)


def move_outputs(node: Any, old: str, new: str) -> None:
    """Replace the folder `old` by `new` in every argument that names an output."""
    pairs = enumerate(node) if isinstance(node, list) else vars(node).items() if isinstance(node, Namespace) else ()
    pairs = node.items() if isinstance(node, dict) else pairs
    for key, value in list(pairs):
        if isinstance(value, str) and key in OUTPUTS and (value == old or value.startswith(f"{old}/")):
            node[key] = new + value.removeprefix(old)
        else:
            move_outputs(value, old, new)


def _exists(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def resolve_tool_functions(cfg: DictConfig) -> None:
    """Make the files of data.rollout.functions and data.rollout.agent absolute."""
    agent = OmegaConf.select(cfg, f"data.{AGENT}")
    if isinstance(agent, str) and agent:
        [cfg.data.rollout.agent] = resolve_functions([agent], AGENT)
    paths = OmegaConf.select(cfg, f"data.{FUNCTIONS}")
    if paths:
        paths = paths if isinstance(paths, ListConfig) else [paths]
        cfg.data.rollout.functions = resolve_functions(map(str, paths), FUNCTIONS)


def resolve_functions(paths: Iterable[str], key: str) -> list[str]:
    """Make the files of functions absolute.

    Raises:
        ConfigError: a path has no form of a function's path, or its file is missing.
    """
    try:
        return [resolve_path(path, Path.cwd(), key) for path in paths]
    except ValueError as error:
        raise ConfigError(str(error)) from error
