"""Every example that the laws try: those that stand as `LAWS` beside the tests of a part, and all parts with defaults.

`LAWS` has an `Example(PART(...))` of an annotator, a term or a weighting. Of a schedule, a curriculum or a transform it
has a function without arguments that builds the part, or its class. A part whose constructor has defaults for all
arguments needs no entry.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.annotators.base import Annotator
from mmrl.annotators.step_advantage import StepAdvantage
from mmrl.annotators.values import Values
from mmrl.curricula.base import Curriculum
from mmrl.methods.robots.dppo import DenoisingSurrogate
from mmrl.methods.robots.rl100 import DistillationTarget
from mmrl.objectives.objective import Term
from mmrl.objectives.weighting import Weighting
from mmrl.schedules.base import Schedule
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.dynamic_sampling import DynamicSampling
from mmrl.transforms.rows.base import RowTransform
from tests.laws.example import Example

SLOTS = tuple(
    f"mmrl.{name}" for name in ("annotators", "curricula", "methods", "objectives", "schedules", "transforms")
)
"""Packages of the parts; the tests of each are in the folder of the same name."""
TESTS = Path(__file__).parents[1]
STATELESS = (Annotator, Term, Weighting)
"""Kinds that are tried as an `Example`; a part of another kind may have state, so every law builds its own."""
STATEFUL = (Schedule, Curriculum, EpisodeTransform, RowTransform)
LAWS = [
    Example(StepAdvantage()),
    Example(StepAdvantage(0.5, normalise=False)),
    Example(Values(rows=3), scores=True),
    Example(Values(rows=3), per_row=True, scores=True),
    Example(DistillationTarget(rows=3), scores=True),
    Example(DenoisingSurrogate(1, steps=4, gamma_denoising=0.9)),
    DynamicSampling,
    lambda: DynamicSampling(num_groups=2),
]
"""Parts whose tests are elsewhere: in `tests/policies`, `tests/data` or the laws alone."""


def find_laws() -> Iterator[Any]:
    """Find the entries of `LAWS` here and in the test modules of the slots."""
    yield from LAWS
    for slot in SLOTS:
        for file in sorted((TESTS / slot.partition(".")[2]).rglob("test_*.py")):
            if re.search(r"^LAWS\b", file.read_text(), flags=re.MULTILINE):  # importing all of them takes seconds
                name = ".".join(file.relative_to(TESTS.parent).with_suffix("").parts)
                yield from importlib.import_module(name).LAWS


def get_part(entry: Any) -> Any:
    """Return the part of an entry of `LAWS`."""
    return entry.part if isinstance(entry, Example) else entry()


@functools.cache
def list_classes() -> frozenset[type]:
    """List every concrete class of the slots."""
    modules = (
        importlib.import_module(module.name)
        for slot in SLOTS
        for module in pkgutil.walk_packages(importlib.import_module(slot).__path__, f"{slot}.")
    )
    parts = {part for module in modules for _, part in inspect.getmembers(module, inspect.isclass)}
    return frozenset(part for part in parts if part.__module__.startswith(SLOTS) and not inspect.isabstract(part))


def discover(base: type) -> set[type]:
    """Discover every concrete subclass in the slots."""
    return {part for part in list_classes() if issubclass(part, base)}


def collect(base: type) -> list[Any]:
    """Collect the entries of a kind, and one of each part that has none and needs no arguments."""
    entries = [entry for entry, part in ENTRIES if isinstance(part, base)]
    listed = {type(get_part(entry)) for entry in entries}
    for part in sorted(discover(base) - listed, key=lambda part: part.__name__):
        parameters = inspect.signature(part).parameters.values()
        if all(parameter.default is not inspect.Parameter.empty for parameter in parameters):
            entries.append(Example(part()) if issubclass(part, STATELESS) else part)
    return entries


def find_missing(base: type, entries: list[Any]) -> str:
    """Return what to do where parts of a kind have no example, "" where all have one."""
    missing = sorted(part.__name__ for part in discover(base) - {type(get_part(entry)) for entry in entries})
    example = "Example(PART(...))" if issubclass(base, STATELESS) else "lambda: PART(...)"
    where = "beside their tests, in tests/methods/THEME/test_PAPER.py"
    return f"write LAWS = [{example}] of {missing} {where}" if missing else ""


ENTRIES = [(entry, get_part(entry)) for entry in find_laws()]
ANNOTATORS, TERMS, WEIGHTINGS = (collect(base) for base in STATELESS)
SCHEDULES, CURRICULA, EPISODE_TRANSFORMS, ROW_TRANSFORMS = (collect(base) for base in STATEFUL)
