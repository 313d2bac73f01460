"""Checks of `mmrl fit --key value` before LightningCLI parses it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from mmrl.commands.cli import enter_project_of
from mmrl.config.compose import ROOTS, SHORT
from mmrl.config.renamed import check_argument_names
from mmrl.core.errors import ConfigError

_KNOWN = ("config", "seed_everything", "recipe", "method", "run_dir", "project", "ckpt_path", *ROOTS)
SWITCHES = ("trust", "overwrite")
"""Options of this start alone: they are read from the command line, and no configuration file can set them."""
_LISTED = re.compile(r"(trainer\.(?:callbacks|logger))\.")


def check_dashed(arguments: Sequence[str], trust: bool = False) -> None:
    """Refuse files that are no configuration, short keys, and named parts, which a file holds as lists."""
    configs, options = [], []
    for number, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        # --key=value, or --key value
        key, equals, value = argument[2:].partition("=")
        value = value if equals else next(iter(arguments[number + 1 : number + 2]), "")
        if key == "config":
            if not value or value.startswith("--"):
                raise ConfigError("--config: give a file, as in --config runs/demo/config.yaml")
            configs.append(enter_project_of(Path(value), trust))
            continue
        options.append(f"--{key}={value}")
        # keys in full, of the configuration, and not within a list
        head = key.partition(".")[0]
        if head in SHORT:
            raise ConfigError(f"--{key}: beside --config keys are written in full: --{SHORT[head]}{key[len(head) :]}")
        if head.rstrip("+") not in _KNOWN:
            near = difflib.get_close_matches(head, _KNOWN, n=1)
            hint = f" Did you mean --{near[0]}?" if near else ""
            raise ConfigError(f"--{key}: unknown option.{hint} There are {', '.join(f'--{name}' for name in _KNOWN)}")
        if listed := _LISTED.match(key):
            raise ConfigError(
                f"--{key}: in a written configuration {listed[1]} is a list without names; change the file, or set it "
                f"when the file is written: mmrl fit recipe=... {key}=... --print_config > config.yaml"
            )
    if not configs:
        raise ConfigError(
            "LightningCLI arguments need --config FILE, which names model and data; see `mmrl fit --help`"
        )
    for config in configs:
        check_argument_names(config, options)


def split_switches(arguments: Sequence[str]) -> tuple[list[str], dict[str, bool]]:
    """Return the other arguments, and the switches: trust=true, also as --trust=true."""
    rest, switches = [], dict.fromkeys(SWITCHES, False)
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if name not in SWITCHES:
            rest.append(argument)
        elif value not in ("true", "false"):
            raise ConfigError(f"{argument}: write {name}=true or {name}=false")
        else:
            switches[name] = value == "true"
    return rest, switches
