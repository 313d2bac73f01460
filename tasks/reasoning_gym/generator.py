"""Build a generator of the package reasoning-gym."""

from __future__ import annotations

import difflib
import json
from functools import lru_cache
from typing import Any

from mmrl.core.installation.optional_packages import import_optional


@lru_cache(maxsize=16)
def build_generator(dataset: str, parameters: str, size: int, seed: int) -> Any:
    """Build the generator of this name; its configuration is given as JSON.

    Raises:
        ModuleNotFoundError: reasoning-gym is not installed.
        ValueError: there is no such generator, or it refuses the configuration.
    """
    reasoning_gym = import_optional("reasoning_gym", "task 'reasoning_gym'")
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        near = difflib.get_close_matches(dataset, DATASETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(DATASETS))}"
        raise ValueError(f"task.dataset={dataset!r} is no generator of reasoning-gym; {hint}")
    options = json.loads(parameters)
    try:
        return reasoning_gym.create_dataset(dataset, size=size, seed=seed, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(f"task.parameters={options} are refused by the generator {dataset!r}: {error}") from error
