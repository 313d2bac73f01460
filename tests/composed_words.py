"""Compose the words of a run, and the options that it names, once for all processes that share the tests."""

import functools
import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from mmrl.config import overrides
from mmrl.config.compose import compose
from mmrl.files.atomic import replace_file
from tests.conftest import COMPOSED

COMPOSE_OPTIONS = overrides._compose_options.__wrapped__


@functools.cache
def compose_words(words: tuple[str, ...]) -> DictConfig:
    """The composed configuration of these words; not to be changed."""
    return pickle.loads(_share(words, lambda: pickle.dumps(compose([*words, "run_dir=same"]))))


@functools.lru_cache(maxsize=1024)
def _compose_options(options: tuple[str, ...], files: tuple[tuple[str, int, int], ...]) -> bytes:
    """What Hydra composes of options, by the times and sizes of all files."""
    return _share(("options", options, files), lambda: COMPOSE_OPTIONS(options, files))


def share_options() -> None:
    """Let every composition of this process take what another has composed of the same options and files."""
    overrides._compose_options = _compose_options


def _share(asked: Any, make: Callable[[], bytes]) -> bytes:
    """What another process has made where the same was asked for, or this one makes."""
    if COMPOSED not in os.environ:  # a script that takes the tests' tiny runs
        return make()
    path = Path(os.environ[COMPOSED]) / hashlib.sha256(repr(asked).encode()).hexdigest()
    if path.exists():
        return path.read_bytes()
    made = make()
    with suppress(OSError), replace_file(path, f"{os.getpid()}.part", sync=False) as file:  # a test limits files
        file.write(made)
    return made
