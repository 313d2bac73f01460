"""Parse the words of many runs up to the typed configuration, each part that they have in common once."""

from typing import Any

from jsonargparse import Namespace
from jsonargparse._common import lenient_check, parsing_defaults, validating_defaults
from jsonargparse._typehints import sub_defaults
from omegaconf import DictConfig

from mmrl.commands import cli
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.parser import DataFirstParser
from mmrl.core.installation.optional_packages import MissingPackageError

PARSED: dict[Any, Namespace] = {}
"""The typed arguments of each part, by its parser, its plain arguments and what is asked for."""


class PartParser(DataFirstParser):
    """The parser, which parses a part as it did before where its plain arguments are equal: no part depends on others.

    What is refused is parsed each time, and so is what has other than plain values.
    """

    def parse_object(self, obj: Any, namespace: Any = None, env: Any = None, defaults: bool = True, **options: Any):
        if not getattr(self, "_inner_parser", False):  # the whole configuration
            return super().parse_object(obj, namespace, env, defaults, **options)
        asked = (env, defaults, *options.items(), *(flag.get() for flag in FLAGS))
        key = (id(self), list_plain(obj), list_plain(namespace), asked)
        if None in key:
            return super().parse_object(obj, namespace, env, defaults, **options)
        if key not in PARSED:
            PARSED[key] = super().parse_object(obj, namespace, env, defaults, **options).clone()
        return PARSED[key].clone()


FLAGS = (sub_defaults, lenient_check, parsing_defaults, validating_defaults)
"""What the parser is doing while it parses a part."""


def list_plain(value: Any) -> Any:
    """A value that can be compared and hashed, with the types of all parts of it; None for one with other objects."""
    if isinstance(value, str | int | float) or value is None:
        return (type(value), value)
    if isinstance(value, Namespace | dict):
        pairs = vars(value) if isinstance(value, Namespace) else value
        parts = [(key, list_plain(part)) for key, part in pairs.items()]
        return None if any(part is None for _, part in parts) else (type(value), *parts)
    if isinstance(value, list | tuple):
        parts = [list_plain(part) for part in value]
        return None if None in parts else (type(value), *parts)
    return None


ABSENT = ("reasoning_gym", "wandb", "mlflow", "trackio", "textarena", "bitsandbytes", "ogbench", "dm_control", "vllm")
"""Optional packages that the extra `dev` leaves out and pages name."""


def share_parts() -> None:
    """Let every CLI of this process parse a part as it did before where its plain arguments are equal.

    What is checked of several parts together is checked each time.
    """
    cli.DataFirstParser = PartParser  # type: ignore[misc]


def check_words(words: list[str]) -> None:
    """Compose the words of `mmrl fit` and check their typed configuration; nothing is built."""
    check_typed(compose(words))


def check_typed(cfg: DictConfig) -> None:
    """Check a composed configuration by its types; of a package that tests do without, the refusal is what is seen."""
    try:
        cli.CLI(to_lightning(cfg), build=False)
    except MissingPackageError as error:
        assert error.name in ABSENT, error
