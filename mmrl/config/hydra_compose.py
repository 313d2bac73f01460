"""Compose options with Hydra: once per process for the same options and files, then the values of the command line."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mmrl.config.option_files import CONF, list_folders, search_path

_VALUE = "++"
"""What an override that sets a value begins with; the others choose or remove options."""


def compose_overrides(overrides: Sequence[str]) -> DictConfig:
    """Compose conf/ and the folders of the search path, Hydra's own section included.

    Hydra sets values after it has merged all options. So the options are composed without values, which takes most of
    the time, and the result is cached until a file changes.

    Args:
        overrides: Hydra's, as `to_hydra_overrides` writes them.

    Raises:
        HydraException: an option that is not there, or a value that cannot be set.
    """
    values = [override for override in overrides if _is_value(override)]
    options = [override for override in overrides if not _is_value(override)]
    files = tuple(_stat_files([CONF, *(folder for _, folder in list_folders())]))
    cfg = pickle.loads(_compose_options((search_path(), *options), files))
    parser = OverridesParser.create()
    for override in parser.parse_overrides(values):
        try:
            OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True, force_add=True)
        except OmegaConfBaseException as error:
            raise ConfigCompositionException(f"Error merging override {override.input_line}") from error
    return cfg


def _is_value(override: str) -> bool:
    """Whether an override sets a value at a key; a key with a / or an @ names a group."""
    key = override.partition("=")[0]
    return key.startswith(_VALUE) and not {"/", "@"} & set(key)


@functools.lru_cache(maxsize=256)
def _compose_options(overrides: tuple[str, ...], files: tuple[tuple[str, int, int], ...]) -> bytes:
    """The pickled configuration of options; `files` only tells whether a file has changed."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return pickle.dumps(compose("config", overrides=list(overrides), return_hydra_config=True))


def _stat_files(folders: Sequence[Path]) -> Iterator[tuple[str, int, int]]:
    """Path, time in nanoseconds and size of every YAML file below the folders."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for path in (os.path.join(parent, name) for name in names if name.endswith(".yaml")):
                stat = os.stat(path) if os.path.exists(path) else os.lstat(path)  # a link to nothing
                yield path, stat.st_mtime_ns, stat.st_size
