"""`mmrl list settings`: where methods run, small policies with random weights first, then pretrained ones."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from mmrl.commands.catalogue.methods import format_choices
from mmrl.commands.catalogue.rows import Row, describe_file, format_keys, read_first_comment, to_rows
from mmrl.commands.catalogue.runs import OWN, find_name, find_users
from mmrl.config.layers.files import Layer, Options, flatten, merge_choices, read_layers
from mmrl.config.layers.settings import HEADER, is_for_pretrained
from mmrl.config.option_files import find_options

SMALL = "toys: small policies that learn on two cores"
PRETRAINED = "pretrained: weights of policy.path, or of the setting's own policy"


def format_settings(width: int) -> list[str]:
    """Lines of at most `width` columns: a heading for each kind of weights, then each setting with its comment."""
    options = find_options()
    settings = options["setting"]
    first = max(map(len, settings)) + 4
    lines: list[str] = []
    for heading in (OWN, SMALL, PRETRAINED):
        names = [name for name in sorted(settings) if find_heading(options, name) == heading]
        lines += [heading] if names else []
        for name in names:
            comment = read_first_comment(settings[name].path)
            lines += textwrap.wrap(
                comment, width, initial_indent=f"  {name:{first - 2}}", subsequent_indent=" " * first
            )
        lines += [""] if names else []
    return [
        *lines,
        "`mmrl fit method=NAME setting=SETTING` runs a method in a setting.",
        "A recipe with policy.path=MODEL runs in the pretrained setting of its policy.",
        "`mmrl list settings NAME` shows one setting in full",
    ]


def find_heading(options: Options, name: str) -> str:
    """The heading of a setting: whose it is, or what weights it is for."""
    if options["setting"][name].origin:
        return OWN
    return PRETRAINED if is_for_pretrained(name) else SMALL


def describe_setting(name: str) -> list[Row]:
    """Comment, groups, numbers and recipes of one setting."""
    options = find_options()
    name = find_name(options, "setting", name, "mmrl list settings")
    file, layers = options["setting"][name].path, read_layers("setting", name, options)
    return to_rows(
        {
            "setting": name,
            "is": read_first_comment(file),
            "weights": "pretrained" if is_for_pretrained(name) else "random, of a small policy",
            "extends": ", ".join(layer.name for layer in layers[:-1]),
            "groups": format_choices(merge_choices(layers)),
            "keys": format_keys(merge_keys(layers)),
            "recipes": ", ".join(find_users(options, "setting", name)),
            "file": describe_file(file),
        }
    )


def merge_keys(layers: Sequence[Layer]) -> dict[str, Any]:
    """What the files of a setting set, by full keys, without what it says about itself."""
    pairs = (pair for layer in layers for pair in flatten(layer.keys))
    return {key: value for key, value in pairs if not key.startswith(f"{HEADER}.")}
