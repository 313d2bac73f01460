"""`mmrl data`: record episodes, inspect a dataset, convert one of an older format."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.commands.help.usage import USAGES
from mmrl.core.errors import ConfigError


def data(arguments: Sequence[str]) -> None:
    """Run record, inspect or convert; without arguments print the usage."""
    if not arguments:
        print(USAGES["data"], end="")
        return
    verb, rest = arguments[0], list(arguments[1:])
    if verb == "record":
        from mmrl.commands.datasets.record import record

        record(rest)
    elif verb == "inspect":
        from mmrl.commands.datasets.inspect import inspect

        inspect(rest)
    elif verb == "convert":
        from mmrl.commands.datasets.convert import convert_dataset

        convert_dataset(rest)
    else:
        raise ConfigError(f"mmrl data {verb}: unknown; the commands of mmrl data are record, inspect and convert")
