"""Hydra finds an option by its name alone, in whichever folder below its group's the file lies, and reads it once.

`override /task: arithmetic` in `defaults:`, or `task=arithmetic` in a sweep, is conf/task/text/arithmetic.yaml.
"""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins import file_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf

from mmrl.config.option_files import OptionFile, find_options, groups, list_folders, search_option

_SCHEME = "mmrl"


class ShortNames(ConfigSource):
    """Hydra config source that finds GROUP/NAME for every option, in whichever folder below its group it lies."""

    @staticmethod
    def scheme() -> str:
        """The word in front of :// in the search path."""
        return _SCHEME

    def available(self) -> bool:
        """Whether the place is there."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Whether this is a group."""
        return config_path in groups()

    def is_config(self, config_path: str) -> bool:
        """Whether this is an option, as GROUP/NAME."""
        return _search(config_path) is not None

    def load_config(self, config_path: str) -> ConfigResult:
        """Read the file of an option.

        Raises:
            ConfigLoadError: there is no such option.
        """
        option = _search(config_path)
        if option is None:
            raise ConfigLoadError(f"Config not found : {config_path}")
        config, header = _read_file(option.path)
        return ConfigResult(config=config, path=self.full_path(), provider=self.provider, header=header)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """The names of a group's options."""
        return [] if results_filter == ObjectType.GROUP else sorted(find_options().get(config_path, ()))


class FileConfigSource(file_config_source.FileConfigSource):
    """Hydra's config source of folders, which parses a file again only after a change."""

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a file below the folder."""
        path = Path(self.path, self._normalize_file_name(config_path))
        if not path.is_file():
            return super().load_config(config_path)  # which raises
        config, header = _read_file(path)
        return ConfigResult(config=config, path=self.full_path(), provider=self.provider, header=header)


def _read_file(path: Path) -> tuple[Any, dict[str, str | None]]:
    """Read a file's configuration and header; Hydra changes both."""
    stat = path.stat()
    return pickle.loads(_parse_file(path, stat.st_mtime_ns, stat.st_size))


@functools.lru_cache(maxsize=1024)
def _parse_file(path: Path, modified: int, size: int) -> bytes:
    """The pickled configuration and header; time and size only tell whether the file has changed."""
    header = ConfigSource._get_header_dict(path.read_text(encoding="utf-8"))
    return pickle.dumps((OmegaConf.load(path), header))


def search_path() -> str:
    """Hydra's override that adds the folders which are not mmrl's to the search path, and the short names of all.

    From then on Hydra reads files by the sources of this module.
    """
    Plugins.instance().register(ShortNames)
    SourcesRegistry.instance().types["file"] = FileConfigSource
    folders = [str(folder).replace("'", "\\'") for _, folder in list_folders()]
    places = [*(f"file://{folder}" for folder in folders), f"{_SCHEME}://options"]
    return "hydra.searchpath=[" + ", ".join(f"'{place}'" for place in places) + "]"


def _search(config_path: str) -> OptionFile | None:
    group, _, name = config_path.removesuffix(".yaml").partition("/")
    return search_option(group, name) if name and "/" not in name else None
