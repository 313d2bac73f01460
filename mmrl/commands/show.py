"""`mmrl show`: print the samples of a run, or write them as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from mmrl.core.errors import ConfigError
from mmrl.files.atomic import write_file
from mmrl.runs.writable import writable
from mmrl.samples.folder import FOLDER, SampleFolder
from mmrl.samples.html import render_page
from mmrl.samples.terminal import format_group
from mmrl.samples.view import SORT_KEYS, select_failures, sort_groups

PAGE = "rollouts.html"
OPTIONS = ("sort", "groups", "max_chars")


@dataclass(frozen=True)
class ShowRequest:
    """What the command line asks for.

    Args:
        folder: of the run.
        iteration: whose samples are shown; None for the newest.
        failures: leave out episodes that succeeded.
        sort: key of `SORT_KEYS`, with "-" before it for descending order; None for the order of sampling.
        groups: at most so many; None for all.
        max_chars: characters of a text; 0 for no limit.
        html: write an HTML file instead.
    """

    folder: Path
    iteration: int | None = None
    failures: bool = False
    sort: str | None = None
    groups: int | None = None
    max_chars: int = 600
    html: bool = False


def parse(arguments: Sequence[str]) -> ShowRequest:
    """Parse what follows `mmrl show`."""
    places, options, iteration = [], {}, None
    for argument in arguments:
        key, equals, value = argument.removeprefix("--").partition("=")
        if key in ("failures", "html") and not equals:
            options[key] = "true"
        elif equals and key in (*OPTIONS, "failures", "html"):
            options[key] = value
        elif argument.isascii() and argument.isdigit() and not Path(argument).is_dir():
            iteration = int(argument)
        else:
            places.append(argument)
    if len(places) != 1 or not Path(places[0]).is_dir():
        raise ConfigError(
            f"give the folder of one run, got {places}; for example `mmrl show runs/mine 3 failures sort=reward`; "
            f"options are failures, html and {', '.join(f'{name}=' for name in OPTIONS)}"
        )
    sort = options.get("sort")
    if sort is not None and sort.removeprefix("-") not in SORT_KEYS:
        raise ConfigError(f"sort={sort}: must be {', '.join(SORT_KEYS)}, or one of them with - for descending order")
    return ShowRequest(
        folder=Path(places[0]),
        iteration=iteration,
        failures=_parse_switch(options, "failures"),
        sort=sort,
        groups=_parse_number(options, "groups", 1),
        max_chars=_parse_number(options, "max_chars", 0) if "max_chars" in options else 600,  # type: ignore[arg-type]
        html=_parse_switch(options, "html"),
    )


def show(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Print the samples of an iteration, or write <run>/rollouts.html. Returns the groups that are shown."""
    request = parse(arguments)
    samples = SampleFolder(request.folder)
    iterations = samples.iterations()
    if not iterations:
        raise ConfigError(
            f"{samples.path} has no samples: a run writes {FOLDER}/ unless trainer.callbacks.samples=null, and runs "
            "from before this version have none"
        )
    iteration = iterations[-1] if request.iteration is None else request.iteration
    try:
        all_groups = samples.read(iteration)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    # the groups that were asked for: failures, sorted, at most so many
    groups: list[dict[str, Any]] = select_failures(all_groups) if request.failures else all_groups
    if request.sort is not None:
        groups = sort_groups(groups, request.sort)
    groups = groups[: request.groups]
    heading = (
        f"{request.folder}: iteration {iteration}, {len(groups)} of {len(all_groups)} groups; "
        f"{len(iterations)} iterations from {iterations[0]} to {iterations[-1]} have samples"
    )
    # a page, or the terminal
    if request.html:
        page = request.folder / PAGE
        with writable(request.folder, "mmrl show"):
            write_file(page, render_page(f"{request.folder.name}: iteration {iteration}", heading, groups))
        print(f"written: {page}")
        return groups
    console = Console(soft_wrap=True, highlight=False, emoji=False, markup=False)
    console.print(heading)
    for group in groups:
        console.print()
        console.print(format_group(group, request.max_chars), end="")
    if not groups:
        console.print("no episode failed")
    return groups


def _parse_switch(options: dict[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name}={options[name]}: must be true or false")
    return value == "true"


def _parse_number(options: dict[str, str], name: str, least: int) -> int | None:
    if name not in options:
        return None
    value = options[name]
    if not (value.isascii() and value.isdigit()) or int(value) < least:
        raise ConfigError(f"{name}={value}: must be a whole number of at least {least}")
    return int(value)
