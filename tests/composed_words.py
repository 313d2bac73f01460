"""Compose the words of a run once for all processes that share the tests."""

import functools
import hashlib
import os
import pickle
from pathlib import Path

from omegaconf import DictConfig

from mmrl.config.compose import compose
from mmrl.files.atomic import replace_file
from tests.conftest import COMPOSED


@functools.cache
def compose_words(words: tuple[str, ...]) -> DictConfig:
    """The composed configuration of these words; not to be changed."""
    if COMPOSED not in os.environ:  # a script that takes the tests' tiny runs
        return compose([*words, "run_dir=same"])
    path = Path(os.environ[COMPOSED]) / hashlib.sha256(repr(words).encode()).hexdigest()
    if path.exists():
        return pickle.loads(path.read_bytes())
    composed = compose([*words, "run_dir=same"])
    with replace_file(path, f"{os.getpid()}.part") as file:
        pickle.dump(composed, file)
    return composed
