"""Groups of runs that differ in their seed alone, and a metric's mean over the seeds with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from mmrl.core.errors import ConfigError
from mmrl.evaluation.statistics.headline import interval_of
from mmrl.evaluation.statistics.intervals import student_interval
from mmrl.files.foreign import read_foreign
from mmrl.runs.metrics_csv import INDEX, NAME, read_rows

CONFIG = "config.yaml"
_LARGEST = 2**24  # bytes of a configuration
MEASURED = ("data.init_args.task", "data.init_args.evaluation")
"""Parts of a configuration that decide on what a held-out number is measured."""
_IGNORED = ("seed_everything", "data.init_args.seed", "run_dir", "project", "ckpt_path", "trainer.logger")


@dataclass(frozen=True)
class SeedRun:
    """One run: its folder, configuration, seed, and rows of metrics.csv."""

    folder: Path
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, float]]

    @property
    def seed(self) -> int:
        return int(self.config.get("seed_everything") or 0)

    @property
    def names(self) -> set[str]:
        """Metrics that the run has."""
        return {name for row in self.rows for name in row}

    def curve(self, metric: str) -> dict[float, float]:
        """Return the finite values by iteration; the last one of an iteration counts."""
        points = {row[INDEX]: row[metric] for row in self.rows if metric in row and INDEX in row}
        return {x: y for x, y in sorted(points.items()) if math.isfinite(y)}

    def interval(self, metric: str) -> tuple[float, float] | None:
        """Return the interval over held-out problems of the last value."""
        last = next((row for row in reversed(self.rows) if metric in row), {})
        return interval_of(metric, last)


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one setting.

    Args:
        name: as it was given.
        runs: one for each seed, by seed.
    """

    name: str
    runs: Sequence[SeedRun]

    def mean_curve(self, metric: str, level: float = 0.95) -> list[tuple[float, float, float, float]]:
        """Return (iteration, mean, lower, upper) where all seeds have a value; Student's t interval over the seeds.

        A single run has no interval over seeds: the ends are its value.
        """
        curves = [run.curve(metric) for run in self.runs]
        common = sorted(set(curves[0]).intersection(*curves[1:]))
        return [(x, *_mean_and_interval([curve[x] for curve in curves], level)) for x in common]

    def last(self, metric: str) -> list[float]:
        """Return the last value of each seed."""
        return [next(reversed(run.curve(metric).values())) for run in self.runs]


def read_group(place: str) -> SeedGroup:
    """Read a group: the folder of a run, a folder of runs, or a pattern such as runs/a/*.

    Raises:
        ConfigError: there is no run, one has no metrics, two have one seed, or they differ in more than the seed.
    """
    folders = [Path(path) for path in sorted(glob(place))] if has_magic(place) else [Path(place)]
    runs = [run for folder in folders for run in ([folder] if (folder / CONFIG).is_file() else _children(folder))]
    if not runs:
        raise ConfigError(f"{place}: no run; give a run's folder, a folder of runs or a pattern, as in 'runs/a/*'")
    group = SeedGroup(place, sorted(map(_read_run, runs), key=lambda run: run.seed))
    first = group.runs[0]
    for run in group.runs[1:]:
        if differing := find_differences(first.config, run.config):
            raise ConfigError(
                f"{place}: {first.folder} and {run.folder} differ in more than the seed: {_list_some(differing)}; give "
                "each setting as a group of its own"
            )
    seeds = [run.seed for run in group.runs]
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise ConfigError(f"{place}: several runs have seed={twice[0]}, and would count as independent; leave one out")
    return group


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any], parts: Sequence[str] = ("",)) -> list[str]:
    """Return the keys in which two configurations differ, except those of the seed and of files that are written.

    Args:
        first: a configuration.
        second: another one.
        parts: beginnings of the keys that are compared.
    """
    flat = [
        {
            key: value.replace(str(config.get("run_dir")), "RUN") if isinstance(value, str) else value
            for key, value in _flatten(config)
            if key.startswith(tuple(parts)) and not key.startswith(_IGNORED)
        }
        for config in (first, second)
    ]
    return [key for key in dict.fromkeys([*flat[0], *flat[1]]) if flat[0].get(key) != flat[1].get(key)]


def _list_some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _flatten(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else None
    if pairs is None:
        if not str(node).startswith("seed="):  # of warm-start stages
            yield key, node
        return
    for name, value in pairs:
        yield from _flatten(value, f"{key}.{name}" if key else str(name))


def _children(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob(f"*/{CONFIG}"))


def _read_run(folder: Path) -> SeedRun:
    try:
        rows = [{name: float(value) for name, value in row.items()} for row in read_rows(folder / NAME)]
        config = yaml.safe_load(read_foreign(folder / CONFIG, "copy the run again", _LARGEST))
    except (ValueError, OSError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{folder}: {NAME} or {CONFIG} cannot be read: {' '.join(str(error).split())}") from error
    if not rows:
        raise ConfigError(f"{folder}: the run has no {NAME}; a run writes it after its first iteration")
    if not isinstance(config, dict) or "data" not in config:
        raise ConfigError(f"{folder / CONFIG}: not the configuration of a run")
    return SeedRun(folder, config, rows)


def _mean_and_interval(values: Sequence[float], level: float) -> tuple[float, float, float]:
    center = mean(values)
    lower, upper = student_interval(values, level) if len(values) > 1 else (center, center)
    return center, lower, upper
