"""Parse the words of many runs up to the typed configuration, each section that they have in common once."""

import json
from typing import Any

from mmrl.commands.cli import CLI
from mmrl.config.compose import ROOTS, compose, to_lightning

PARSED: dict[tuple[str, str], Any] = {}
"""The typed configuration of each section, trainer, model or data, by its plain values."""


class SectionCLI(CLI):
    """The CLI, which parses a section as it did before where its plain values are equal: no section depends on others.

    What is checked of several sections together is checked each time.
    """

    def parse_arguments(self, parser: Any, args: Any) -> None:
        parse = parser.parse_object

        def parse_new(given: dict[str, Any]) -> Any:
            keys = {root: (root, json.dumps(given[root], sort_keys=True, default=str)) for root in ROOTS}
            known = {root for root in ROOTS if keys[root] in PARSED}
            config = parse({name: part for name, part in given.items() if name not in known}, _skip_required=True)
            for root in ROOTS:
                if root not in known:
                    PARSED[keys[root]] = config[root].clone()
                config[root] = PARSED[keys[root]].clone()
            return config

        parser.parse_object = parse_new
        super().parse_arguments(parser, args)


def check_words(words: list[str]) -> None:
    """Compose the words of `mmrl fit` and check their typed configuration; nothing is built."""
    SectionCLI(to_lightning(compose(words)), build=False)
