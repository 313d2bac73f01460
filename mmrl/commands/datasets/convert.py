"""`mmrl data convert`: a dataset in an older or another format becomes a LeRobotDataset v3.0."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mmrl.commands.datasets.inspect import write_statistics
from mmrl.commands.options import CONVERT_OPTIONS, parse_number, parse_switch, split_options
from mmrl.core.errors import ConfigError
from mmrl.datasets.hub import locate_dataset
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.older import OlderLeRobot, convert
from mmrl.datasets.lerobot.reader import LeRobotDataset
from mmrl.datasets.lerobot.writer import LeRobotWriter
from mmrl.datasets.rlds.folder import FEATURES, RldsFolder
from mmrl.runs.writable import writable


def convert_dataset(arguments: Sequence[str]) -> None:
    """Write the dataset anew, and read every episode of it."""
    options, places = split_options(arguments, CONVERT_OPTIONS)
    if wrong := [argument for argument in places if "=" in argument and not Path(argument).exists()]:
        raise ConfigError(f"mmrl data convert: unknown option {wrong[0]}; the options are {', '.join(CONVERT_OPTIONS)}")
    if len(places) != 1 or "out" not in options:
        raise ConfigError(f"mmrl data convert: give one dataset and out=FOLDER, got {list(arguments)}")
    source, out = locate_dataset(places[0]), Path(options["out"])
    console = Console(width=None if Console().is_terminal else 140, markup=False, emoji=False)
    fresh = not out.exists()
    try:
        with writable(out, "out"):
            _convert(console, source, out, options)
    except BaseException:
        if fresh:  # half a dataset is none
            shutil.rmtree(out, ignore_errors=True)
        raise


def _convert(console: Console, source: Path, out: Path, options: dict[str, str]) -> None:
    if (source / FEATURES).is_file():
        _convert_rlds(console, source, out, options)
    elif (source / layout.INFO).is_file():
        if given := [name for name in CONVERT_OPTIONS[1:] if name in options]:
            raise ConfigError(f"mmrl data convert: {given[0]} is for RLDS; a LeRobotDataset states it itself")
        convert(OlderLeRobot(source), out)
        write_statistics(console, LeRobotDataset(out))
    else:
        raise ConfigError(
            f"mmrl data convert: {source} has no {layout.INFO}, as LeRobotDatasets v2.0 and v2.1 have, and no "
            f"{FEATURES}, as RLDS has beside its files of records (give the folder of the version, such as NAME/1.0.0)"
        )
    dataset = LeRobotDataset(out)
    dataset.check()
    console.print(f"written: {out}, {len(dataset)} episodes, {sum(dataset.lengths())} control steps", highlight=False)
    dataset.close()


def _convert_rlds(console: Console, source: Path, out: Path, options: dict[str, str]) -> None:
    if "fps" not in options:
        raise ConfigError("mmrl data convert: RLDS does not state the control steps per second: give fps=NUMBER")
    fps, video = parse_number(options, "fps", 0.0, 1e-3), parse_switch(options, "video", True)
    actions = [part for part in options.get("action", "").split(",") if part]
    folder = RldsFolder(source, options.get("split", "train"), actions)
    if folder.unread:
        console.print(f"not read: {', '.join(folder.unread)}", highlight=False)
    writer = LeRobotWriter(out, fps, video)
    for episode in folder:
        writer.add(episode)
    writer.close()
