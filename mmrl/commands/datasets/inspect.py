"""`mmrl data inspect`: schema, counts, statistics with warnings, and images of a dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from mmrl.commands.options import parse_switch, split_options
from mmrl.core.errors import ConfigError
from mmrl.datasets.base import Dataset, Statistics
from mmrl.datasets.contact_sheet import write_contact_sheet
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.reader import LeRobotDataset
from mmrl.datasets.offline_episodes import OfflineEpisode, find_unusable
from mmrl.datasets.statistics import NOT_FINITE, TOO_LARGE, compute_statistics, find_anomalies
from mmrl.runs.writable import writable

SHOWN = ("min", "q01", "mean", "q99", "max", "std")
_DRIFT = 0.05  # of a standard deviation, by which a stated mean may differ


def inspect(arguments: Sequence[str]) -> None:
    """Read every episode's table, print what is in it, and draw a contact sheet."""
    options, places = split_options(arguments, ("out", "write"))
    write = parse_switch(options, "write", False)
    if wrong := [argument for argument in places if "=" in argument and not Path(argument).exists()]:
        raise ConfigError(f"mmrl data inspect: unknown option {wrong[0]}; the options are out=FOLDER and write=true")
    if len(places) != 1:
        raise ConfigError(f"mmrl data inspect: give one dataset, got {places}; for example `mmrl data inspect FOLDER`")
    place = Path(places[0])
    dataset = open_dataset(place, statistics=not write)
    episodes = [_light(dataset.read(number), dataset) for number in range(len(dataset))]
    console = Console(width=None if Console().is_terminal else 140, markup=False, emoji=False)  # others' names
    _overview(console, dataset, episodes)
    _schema(console, dataset)
    statistics = compute_statistics(dataset, episodes)
    unusable = [*_numbers(console, dataset, episodes, statistics), *_beside(episodes)]
    _print_images(console, dataset)
    if write:
        write_statistics(console, dataset)
    else:
        _drift(console, dataset, statistics)
    beside = place if place.is_dir() else place.parent if place.exists() else Path()  # not into the hub's cache
    folder = Path(options["out"]) if "out" in options else beside
    name = f"{place.stem}_contact_sheet.png" if place.is_file() else "contact_sheet.png"
    failed = [number for number, episode in enumerate(episodes) if episode.success is False]
    with writable(folder / name, "out"):
        sheet = write_contact_sheet(dataset, folder / name, failed=failed)
    console.print("no camera, so no contact sheet" if sheet is None else f"written: {sheet}", highlight=False)
    dataset.close()
    if unusable:
        raise ValueError(
            f"{place}: nothing may be trained on {len(unusable)} of these columns: {'; '.join(unusable[:4])}"
            f"{'; ...' if len(unusable) > 4 else ''}; leave those episodes out or mend them"
        )


def _light(episode: OfflineEpisode, dataset: Dataset) -> OfflineEpisode:
    """Without images, so that all episodes fit into memory."""
    episode.observations = {
        name: rows for name, rows in episode.observations.items() if not dataset.features[name].camera
    }
    return episode


def _overview(console: Console, dataset: Dataset, episodes: Sequence[OfflineEpisode]) -> None:
    steps = sum(map(len, episodes))
    flagged = Counter(episode.success for episode in episodes)
    ended = Counter(episode.ended for episode in episodes)
    instructions = Counter(text for episode in episodes for text in episode.texts)
    rate = "control steps per second: not stated" if dataset.fps is None else f"fps: {dataset.fps:g}"
    long = "" if dataset.fps is None else f" ({steps / dataset.fps:.1f} s)"
    lengths = [len(episode) for episode in episodes]
    lines = [
        f"{dataset.path}: {dataset.format}",
        f"episodes: {len(episodes)}, control steps: {steps}{long}, {min(lengths)} to {max(lengths)} each; {rate}",
        f"success: {flagged[True]}, failed: {flagged[False]}, not stated: {flagged[None]}; ended by themselves: "
        f"{ended['done']}, cut off: {ended['time']}, recording stopped: {ended['cut']}",
        f"instructions: {len(instructions)}: "
        + ", ".join(f"{text!r} {count}x" for text, count in instructions.most_common(4))
        + (", ..." if len(instructions) > 4 else ""),
        f"seeds: {sum(episode.seed is not None for episode in episodes)} episodes state one",
        "simulator contract: " + (json.dumps(dataset.contract, sort_keys=True) if dataset.contract else "not stated"),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _schema(console: Console, dataset: Dataset) -> None:
    table = Table("name", "type", "shape per control step", title="columns")
    for name, feature in dataset.features.items():
        table.add_row(name, feature.dtype, str(list(feature.shape)))
    console.print(table)


def _numbers(
    console: Console, dataset: Dataset, episodes: Sequence[OfflineEpisode], statistics: dict[str, Statistics]
) -> list[str]:
    """Print the table; the dimensions with numbers that `Dataset.check` refuses."""
    unusable: list[str] = []
    table = Table("dimension", *SHOWN, "look at", title="numbers")
    for name, feature in dataset.features.items():
        if feature.camera:
            continue
        rows = [np.asarray(e.actions if name == "action" else e.observations[name]) for e in episodes]
        values = np.concatenate([part.reshape(len(part), -1) for part in rows])
        for dim, suspicious in enumerate(find_anomalies(values)):
            label = feature.names[dim] if feature.names and dim < len(feature.names) else str(dim)
            numbers = (
                [f"{statistics[name][part][dim]:.4g}" for part in SHOWN] if name in statistics else ["-"] * len(SHOWN)
            )
            table.add_row(f"{name}[{label}]", *numbers, ", ".join(suspicious), style="yellow" if suspicious else None)
            if broken := [flag for flag in suspicious if flag.endswith((NOT_FINITE, TOO_LARGE))]:
                unusable.append(f"{name}[{label}]: {', '.join(broken)}")
    console.print(table)
    return unusable


def _beside(episodes: Sequence[OfflineEpisode]) -> list[str]:
    """Columns beside actions and observations whose numbers are refused in training, each with its first place."""
    count: Counter[str] = Counter()
    first: dict[str, str] = {}
    for episode in episodes:
        final = {f"observation {name} after the last action": row for name, row in (episode.final or {}).items()}
        for name, rows in {"reward": episode.rewards, "executed action": episode.executed, **final}.items():
            if rows is not None and (broken := len(find_unusable(np.asarray(rows)))):
                count[name] += broken
                first.setdefault(name, episode.where)
    return [
        f"{name}: {number} numbers {NOT_FINITE} or {TOO_LARGE}, first in {first[name]}"
        for name, number in count.items()
    ]


def _print_images(console: Console, dataset: Dataset) -> None:
    for name, feature in dataset.features.items():
        if feature.camera:
            console.print(f"camera {name}: {feature.dtype} {list(feature.shape)}", highlight=False)


def _drift(console: Console, dataset: Dataset, by_name: dict[str, Statistics]) -> None:
    """Stated statistics that are not those of the data: policies would be given other numbers than they were."""
    try:
        stated = dataset.statistics()
    except ValueError as error:
        console.print(str(error), style="red", highlight=False)
        return
    for name, statistics in by_name.items():
        if name not in stated:
            console.print(f"no stated statistics of {name}; write=true computes them", style="yellow", highlight=False)
            continue
        std = np.maximum(statistics["std"], 1e-6)
        for part in ("mean", "std"):
            away = np.abs(stated[name].get(part, statistics[part]).reshape(-1) - statistics[part]) / std
            for dim in np.flatnonzero(away > _DRIFT):
                console.print(
                    f"{name}[{dim}]: stated {part} {stated[name][part].reshape(-1)[dim]:.4g}, in the data "
                    f"{statistics[part][dim]:.4g}; write=true states that of the data",
                    style="red",
                    highlight=False,
                )


def write_statistics(console: Console, dataset: Dataset) -> None:
    """Compute the statistics of a dataset, of its images too, and store them beside it.

    Raises:
        ConfigError: its format has no file for them.
    """
    if not isinstance(dataset, LeRobotDataset):
        raise ConfigError(f"write=true: {dataset.format} files hold no statistics")
    keys = {name: key for key, name in dataset.names.items()} | {"action": layout.ACTION}
    whole = compute_statistics(dataset, cameras=any(f.camera for f in dataset.features.values()))
    plain = {keys[name]: {part: value.tolist() for part, value in s.items()} for name, s in whole.items()}
    path = dataset.path / layout.STATS
    with writable(path, "write=true"):
        path.write_text(json.dumps(plain, indent=2) + "\n")
    console.print(f"written: {path}", highlight=False)
