"""`mmrl data convert`: a dataset in an older format becomes a LeRobotDataset v3.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mmrl.commands.data_inspect import write_statistics
from mmrl.commands.options import split_options
from mmrl.core.errors import ConfigError
from mmrl.datasets.hub import locate_dataset
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.older import OlderLeRobot, convert
from mmrl.datasets.lerobot.reader import LeRobotDataset


def convert_dataset(arguments: Sequence[str]) -> None:
    """Write the dataset anew, read every episode of it, and store its statistics."""
    options, places = split_options(arguments, ("out",))
    if wrong := [argument for argument in places if "=" in argument and not Path(argument).exists()]:
        raise ConfigError(f"mmrl data convert: unknown option {wrong[0]}; the option is out=FOLDER")
    if len(places) != 1 or "out" not in options:
        raise ConfigError(f"mmrl data convert: give one dataset and out=FOLDER, got {list(arguments)}")
    source = locate_dataset(places[0])
    if not (source / layout.INFO).is_file():
        raise ConfigError(f"mmrl data convert: {source} has no {layout.INFO}; LeRobotDatasets v2.0 and v2.1 have one")
    out = Path(options["out"])
    convert(OlderLeRobot(source), out)
    dataset = LeRobotDataset(out)
    console = Console(width=None if Console().is_terminal else 140, markup=False, emoji=False)
    write_statistics(console, dataset)
    dataset.close()
    console.print(f"written: {out}, {len(dataset)} episodes, {sum(dataset.lengths())} control steps", highlight=False)
