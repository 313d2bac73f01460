"""The files of recipes, starts and methods as the lists need them: theme, method, setting and stages, without Hydra."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmrl.config.layers.files import RUNS, Layer, Options, find_part, read_run
from mmrl.config.option_files import OptionFile
from mmrl.core.errors import ConfigError

OWN = "yours"
"""The theme of what is not mmrl's: of conf/ in the working directory, of --config-dir and of installed packages."""


@dataclass(frozen=True)
class RunOption:
    """A recipe or a start: the files of which it is composed, in the order in which they are merged."""

    group: str
    name: str
    layers: Sequence[Layer]

    @property
    def method(self) -> str:
        return find_part(self.layers, "method")

    @property
    def setting(self) -> str:
        return find_part(self.layers, "setting")

    @property
    def stages(self) -> dict[str, list[str]]:
        """The arguments of each stage that gives a random policy its starting weights; empty without a warm start."""
        stages: dict[str, list[str]] = {}
        for layer in self.layers:
            warm_start = ((layer.keys.get("trainer") or {}).get("callbacks") or {}).get("warm_start", {})
            if warm_start is None or warm_start.get("stages", {}) is None:
                stages = {}
            else:
                stages |= warm_start.get("stages", {})
        return {stage: [str(word) for word in words] for stage, words in stages.items() if words}


def read_runs(options: Options, group: str) -> dict[str, RunOption]:
    """Every recipe or every start, by its name."""
    return {name: RunOption(group, name, read_run({group: name}, options)) for name in sorted(options[group])}


def find_theme(file: OptionFile) -> str:
    """The theme of a method: the folder of its file below conf/method, or `OWN`."""
    return OWN if file.origin else file.name.rpartition("/")[0]


def group_themes(themes: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Each theme with its names, the user's first.

    Args:
        themes: of recipes or methods, by name.
    """
    for theme in sorted(set(themes.values()), key=lambda theme: (theme != OWN, theme)):
        yield theme, sorted(name for name, each in themes.items() if each == theme)


def list_users(options: Options, group: str) -> dict[str, list[str]]:
    """The runs that have each method or each setting, or a stage that runs a recipe or a start; starts as start=NAME.

    Args:
        options: the files of all options.
        group: of what is used.
    """
    users: dict[str, list[str]] = {}
    for run in (run for kind in RUNS for run in read_runs(options, kind).values()):
        stages = {words[0].partition("=")[2] for words in run.stages.values() if words[0].startswith(f"{group}=")}
        names = {"method": {run.method}, "setting": {run.setting}}.get(group, stages)
        for name in names:
            users.setdefault(name, []).append(run.name if run.group == "recipe" else f"start={run.name}")
    return users


def find_users(options: Options, group: str, name: str) -> list[str]:
    """The runs that have one method or setting, or begin with one recipe or start."""
    return list_users(options, group).get(name, [])


def find_name(options: Options, group: str, name: str, command: str) -> str:
    """The option that an argument names, with or without its folder.

    Raises:
        ConfigError: there is none.
    """
    stem = name.rpartition("/")[2]
    if stem not in options[group]:
        near = difflib.get_close_matches(stem, options[group], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no {group} {name!r}.{hint} Name one group, or one {group}: `{command}` shows all")
    return stem
