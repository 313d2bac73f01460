"""The key `rollout.functions`: plain functions as tools, by path."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf

from mmrl.errors import ConfigError
from mmrl.rewards.function_path import resolve_path

KEY = "rollout.functions"


def resolve_tool_functions(cfg: DictConfig) -> None:
    """Make the files of data.rollout.functions absolute, so that the run can be resumed from another folder."""
    paths = OmegaConf.select(cfg, f"data.{KEY}")
    if not paths:
        return
    paths = paths if isinstance(paths, ListConfig) else [paths]
    try:
        cfg.data.rollout.functions = [resolve_path(str(path), Path.cwd(), KEY) for path in paths]
    except ValueError as error:
        raise ConfigError(str(error)) from error
